"""What the commands that work on specs have in common: devices, processes, one spec after the other, exit status."""

import os
import re
import signal
import subprocess
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from multiprocessing.queues import Queue
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pne.console import say
from pne.engine.locks import claimed_devices
from pne.engine.provenance import running_code
from pne.errors import EXIT_USER_ERROR, UserError, output_is_unread
from pne.spec import Run, read_spec

if TYPE_CHECKING:
    from pne.engine.processes import Processes

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
EXIT_STATUS = {signal.SIGTERM: 75, signal.SIGINT: 130}
SHUTDOWN_S = 600
"""How long torchrun waits for the checkpoints of processes that it has told to stop, where it can be told."""
SHARED_MEMORY = re.compile(r"out of shared memory|shared memory\(shm\)|/dev/shm|signal: Bus error|exited unexpectedly")
HOST_MEMORY = re.compile(r"MemoryError: |allocate memory|bad_alloc|signal: Killed")
DEVICE_MEMORY = re.compile(r"out of memory|OutOfMemoryError: |_ALLOC_FAILED|_STATUS_NOT_INITIALIZED")
"""What allocators and libraries say; cuBLAS and cuDNN cannot even start where no memory is left."""


class RunFailure(RuntimeError):
    """The run failed; trying again as it is would fail again. The message says it all: no traceback is printed."""


class DivergenceError(RunFailure):
    """A loss or a weight is NaN or infinite.

    Attributes
    ----------
    iteration : int
        Number of the iteration, counted from 1.
    what : str
        What is not finite, and what to do.
    """

    def __init__(self, iteration: int, what: str) -> None:
        super().__init__(f"iteration {iteration}: {what}")
        self.iteration, self.what = iteration, what


class OutOfMemoryFailure(RunFailure):
    """The memory of the device or of the machine does not suffice."""


@contextmanager
def told_out_of_memory(what: str, advice: str) -> Iterator[None]:
    """Turn what says inside the block that memory does not suffice into one message with what may help.

    Parameters
    ----------
    what : str
        With what, or where.
    advice : str
        What lets the block take less of the device's memory.

    Raises
    ------
    OutOfMemoryFailure
        With what the allocator or the library said.
    """
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, RunFailure):
            raise
        if SHARED_MEMORY.search(said):
            advice = "workers=0 in --config, or a larger /dev/shm (docker run --shm-size=8g), which may be full"
        elif HOST_MEMORY.search(said.replace("OutOfMemoryError: ", "")):
            advice += ", fewer loader processes (workers), or a job with more memory"
        elif not DEVICE_MEMORY.search(said):
            raise
        raise OutOfMemoryFailure(f"out of memory {what}; try {advice} ({said.splitlines()[0]})") from error


class Interrupted(BaseException):  # what handles errors on the way shall let it pass
    """The run stopped on request; ``signum`` tells by which signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum

    @property
    def exit_status(self) -> int:
        """75 (try again later) after SIGTERM, 130 after Ctrl-C."""
        return EXIT_STATUS[signal.Signals(self.signum)]


class StopRequest:
    """The first signal that asked this process to stop, if any; 0 as long as none came.

    A training then stops at its next iteration boundary, with a checkpoint written. Data that do not come within
    `PATIENCE` seconds of the signal are waited for no longer.

    Attributes
    ----------
    signum : int
        Of the signal.
    waiting : bool
        Whether data are waited for.
    """

    PATIENCE = 15.0

    def __init__(self) -> None:
        self.signum = 0
        self.waiting = False

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Remember the request; a second Ctrl-C stops at once."""
        if self.signum and signum == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.signum:
            self.signum = signum
            self.waits(self.waiting)

    def check(self) -> None:
        """Raise ``Interrupted`` if a signal came; nothing is lost if one ends what follows."""
        self.waits(not self.signum)
        if self.signum:
            raise Interrupted(self.signum)

    def waits(self, now: bool) -> None:
        """Data are waited for from now on, or have come."""
        self.waiting = now
        signal.setitimer(signal.ITIMER_REAL, self.PATIENCE if now and self.signum else 0)


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Turn SIGTERM and SIGINT into a ``StopRequest`` inside the block (main thread only)."""
    request = StopRequest()
    before = {signum: signal.signal(signum, request.note) for signum in EXIT_STATUS}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: request.check() if request.waiting else None)
    try:
        yield request
    finally:
        request.waits(False)
        for signum, handler in before.items():
            signal.signal(signum, handler)


def leave_signals_to_parent() -> None:
    """In a data-loading worker: ignore the signals that a cluster sends to all processes of a job.

    The parent ends its workers itself once it has written its checkpoint. It notices when one ends, but would wait
    for ever for a batch that cannot be passed on, as with a full ``/dev/shm``: such a worker ends.
    """
    for signum in EXIT_STATUS:
        signal.signal(signum, signal.SIG_IGN)
    Queue._on_queue_feeder_error = staticmethod(_end_worker)


def _end_worker(error: Exception, batch: object) -> None:
    print(f"loader process: {error}", file=sys.stderr, flush=True)
    os._exit(EXIT_FAILED)


Act = Callable[[Path, "Processes", StopRequest], None]


def carry_out(module: str, argv: Sequence[str], specs: Sequence[Path], act: Act, keep_going: bool = False) -> int:
    """Act on each spec, on the GPUs that the specs ask for, and return the exit status.

    Parameters
    ----------
    module : str
        The command's module; run anew by torchrun in as many processes as a run has GPUs.
    argv : sequence of str
        Its arguments.
    specs : sequence of Path
        In this order.
    act : callable
        Works on one spec.
    keep_going : bool
        Whether a failure lets the next spec begin.

    Raises
    ------
    UserError
        If the specs cannot be read, or ask for different devices.
    """
    runs, device = read_runs(specs)
    if device == "cpu" or "WORLD_SIZE" in os.environ:
        return _act_here(device, specs, act, keep_going)
    gpus = _the_only("gpus", [run.runtime.gpus for run in runs])
    try:
        with claimed_devices(int(gpus), report=say) as claimed:
            if len(claimed) > 1:
                return launch(module, argv, len(claimed))
            return _act_here(device, specs, act, keep_going)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def spec_parser(module: str, doc: str) -> ArgumentParser:
    """Return the parser of a command that works on specs, described by the first paragraph of its module."""
    parser = ArgumentParser(prog=f"python -m {module}", description=doc.split("\n\n")[0])
    parser.add_argument("specs", nargs="+", type=Path, metavar="SPEC", help="spec.yaml of a run")
    parser.add_argument("--keep-going", action="store_true", help="go on with the next spec after a failure")
    return parser


def read_runs(specs: Sequence[Path]) -> tuple[list[Run], str]:
    """Read specs, their device, and then the code that counts for them: what is edited later does not run here."""
    runs = [read_spec(path) for path in specs]
    for run in runs:
        running_code(run)
    return runs, _the_only("device", [run.runtime.device for run in runs])


def _the_only(name: str, values: Sequence[object]) -> str:
    found = sorted({str(value) for value in values})
    if len(found) > 1:
        raise UserError(f"the specs differ in {name} ({', '.join(found)}); give those that agree in one command")
    return found[0]


def launch(module: str, argv: Sequence[str], count: int) -> int:
    """Run a command in ``count`` processes of this machine and return the exit status; signals are passed on."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}"]
    # Read as text: importing torch takes seconds.
    torchrun = Path(find_spec("torch").origin).with_name("distributed") / "run.py"
    if "--shutdown-timeout" in torchrun.read_text(encoding="utf-8"):
        command.append(f"--shutdown-timeout={SHUTDOWN_S}")
    with listening() as request:
        status = run_process([*command, "-m", module, *argv], request)
        return EXIT_STATUS[request.signum] if status and request.signum else status


def run_process(command: Sequence[str], request: StopRequest, log: Path | None = None) -> int:
    """Run a command to its end and return its exit status (negative: killed by that signal); a signal is passed on.

    Parameters
    ----------
    command : sequence of str
    request : StopRequest
        Of this process.
    log : Path, optional
        Gets everything that the command prints, in place of an older one.
    """
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
    with nullcontext() if log is None else log.open("wb") as stream:
        errors = None if log is None else subprocess.STDOUT
        with subprocess.Popen(command, stdout=stream, stderr=errors) as process:
            passed_on = False
            while True:
                try:
                    return process.wait(timeout=0.5)
                except subprocess.TimeoutExpired:
                    if request.signum and not passed_on:
                        process.send_signal(request.signum)
                        passed_on = True


def _act_here(device: str, specs: Sequence[Path], act: Act, keep_going: bool) -> int:
    with listening() as request:
        # Imported after the signals are caught: torch takes seconds.
        from pne.engine.processes import joined

        with joined(device) as processes:
            alone = processes.world_size == 1  # several processes cannot go on when one of them has failed
            status = run_each(specs, lambda path: act(path, processes, request), request, keep_going and alone)
            if status and not alone:
                sys.stdout.flush()
                os._exit(status)  # leaving in good order would wait for the others
            return status


def run_each(specs: Sequence[Path], act: Callable[[Path], None], request: StopRequest, keep_going: bool) -> int:
    """Act on each spec in turn and return the exit status; of several failures 1 outranks 2.

    Parameters
    ----------
    specs : sequence of Path
        In this order.
    act : callable
        Works on one spec, raising what goes wrong.
    request : StopRequest
        No further spec is begun once a signal came.
    keep_going : bool
        Whether a failure lets the next spec begin.
    """
    statuses = {0}
    for path in specs:
        try:
            request.check()
            act(path)
            request.waits(False)
        except Interrupted as stop:
            print(f"{path}: {stop}", file=sys.stderr, flush=True)
            return stop.exit_status
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except Exception as error:
            if isinstance(error, BrokenPipeError) and output_is_unread():
                raise
            statuses.add(report(path, error))
            if not keep_going:
                break
    return EXIT_FAILED if EXIT_FAILED in statuses else max(statuses)


def report(path: Path, error: Exception) -> int:
    """Print what went wrong; a traceback only for what nobody foresaw. Returns the exit status."""
    if isinstance(error, UserError):
        # Of a loader process, torch tells the traceback first.
        print(f"error: {str(error).rpartition('errors.UserError: ')[2].strip()}", file=sys.stderr, flush=True)
        return EXIT_USER_ERROR
    if not isinstance(error, RunFailure):
        traceback.print_exception(error)
    print(f"error: {path}: {error}", file=sys.stderr, flush=True)
    return EXIT_FAILED


def is_of(run: Run, path: Path) -> None:
    """Refuse a spec that lies elsewhere than it says, since results would go to an unexpected place.

    Raises
    ------
    UserError
        Naming both places.
    """
    if path.parent.resolve() != run.directory.resolve():
        raise UserError(
            f"{path}: the spec says its results go to {run.directory.resolve()}; run the command from the folder that "
            "the workflow runs in, or write the spec anew"
        )
