"""Train runs: ``python -m pne.train SPEC [SPEC ...]``, each from its ``spec.yaml`` to its published results.

Exit status: 0 all finished; 1 a run failed; 2 an error the user can mend; 75 SIGTERM came and a checkpoint is written
(try again later); 130 Ctrl-C. Several processes: ``torchrun --standalone --nproc_per_node N -m pne.train SPEC``.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from pne.engine.interruption import Interrupted, StopRequest, listening
from pne.errors import EXIT_USER_ERROR, UserError, reports_user_errors

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """Command line of ``python -m pne.train``."""
    command = argparse.ArgumentParser(prog="python -m pne.train", description=__doc__.split("\n\n")[0])
    command.add_argument("specs", nargs="+", type=Path, metavar="SPEC", help="spec.yaml of a run")
    command.add_argument(
        "--retrain", action="store_true", help="train a finished run again; its results stay until then"
    )
    command.add_argument("--keep-going", action="store_true", help="go on with the next spec after a failure")
    command.add_argument("--micro-batch", type=_positive, metavar="N", help="at most N images per forward pass")
    return command


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text}")
    return number


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Train each run; return the exit status."""
    arguments = parser().parse_args(argv)
    with listening() as request:
        # After the signals are caught: these imports take seconds.
        from pne.engine.processes import joined
        from pne.engine.session import Settings, train_spec
        from pne.spec import read_spec

        settings = Settings(retrain=arguments.retrain, micro_batch=arguments.micro_batch)
        devices = {read_spec(path).runtime.device for path in arguments.specs}
        if len(devices) > 1:
            raise UserError(f"the specs name several devices ({', '.join(sorted(devices))}); train them one by one")
        with joined(devices.pop()) as processes:
            keep_going = arguments.keep_going and processes.world_size == 1  # others would wait for the failed one
            return run_each(
                arguments.specs, lambda path: train_spec(path, settings, processes, request), request, keep_going
            )


def run_each(specs: Sequence[Path], act: Callable[[Path], None], request: StopRequest, keep_going: bool) -> int:
    """Act on each spec in turn and return the exit status; 1 outranks 2.

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
        except Interrupted as stop:
            print(f"{path}: {stop}", file=sys.stderr, flush=True)
            return stop.exit_status
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except Exception as error:
            statuses.add(report(path, error))
            if not keep_going:
                break
    return EXIT_FAILED if EXIT_FAILED in statuses else max(statuses)


def report(path: Path, error: Exception) -> int:
    """Print what went wrong; a traceback only for what nobody foresaw. Returns the exit status."""
    from pne.engine.record import DivergenceError

    if isinstance(error, UserError):
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_USER_ERROR
    if not isinstance(error, DivergenceError):
        traceback.print_exception(error)
    print(f"failed: {path}: {error}", file=sys.stderr, flush=True)
    return EXIT_FAILED


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and status:
        os._exit(status)  # a failed process of several must not wait for the others on its way out
    sys.exit(status)
