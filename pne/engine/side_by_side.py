"""Several runs at a time on one CPU: a parent imports what takes seconds and forks a child for each run.

The parent computes nothing with torch: children inherit neither thread pools nor random states that anything was drawn
from.
"""

import ctypes
import gc
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path

from pne.console import duration, say
from pne.engine.command import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_STATUS, Act, listening, read_runs, run_each
from pne.errors import UserError
from pne.spec import Run

MMSEG = ("datasets", "engine", "evaluation", "models", "visualization")
PNE = ("pne.engine.session", "pne.datasets.registered", "pne.heads")
SHARED = (*PNE, *(f"mmseg.{name}" for name in MMSEG), "matplotlib.pyplot", "torch._dynamo")
PR_SET_PDEATHSIG = 1  # of prctl(2)


def act_side_by_side(specs: Sequence[Path], act: Act, cores: int, keep_going: bool) -> int:
    """Act on each spec in a process of its own, on as many at a time as cores allow, and return the exit status.

    Parameters
    ----------
    specs : sequence of Path
        In this order.
    act : callable
        Works on one spec. What it prints is appended to ``log`` in the run's folder.
    cores : int
        Cores to fill; a run takes its `Runtime.cores`, and one always begins.
    keep_going : bool
        Whether a failure lets further specs begin.

    Returns
    -------
    int
        As of `run_each`; a child that a signal killed has failed.

    Raises
    ------
    UserError
        If the specs cannot be read, or are not for the CPU.
    """
    runs, device = read_runs(specs)
    if device != "cpu":
        raise UserError(f"--cores: for runs on the CPU, and these ask for device {device}; leave it out")
    with listening() as request:
        for name in SHARED:
            importlib.import_module(name)
        importlib.import_module("cv2").setNumThreads(0)
        gc.freeze()  # a child's collections need not search what is there now
        waiting, running, statuses, passed_on = list(zip(runs, specs, strict=True)), {}, {0}, False

        def begins() -> bool:
            busy = sum(run.runtime.cores for _, run, _ in running.values())
            fits = bool(waiting) and (not running or busy + waiting[0][0].runtime.cores <= cores)
            return fits and not request.signum and (keep_going or statuses == {0})

        try:
            while running or begins():
                while begins():
                    run, path = waiting.pop(0)
                    child = multiprocessing.get_context("fork").Process(
                        target=_child, args=(run, path, act, os.getpid())
                    )
                    child.start()
                    running[child.sentinel] = child, run, time.monotonic()
                for sentinel in wait(running, timeout=0.5):
                    child, run, begin = running.pop(sentinel)
                    child.join()
                    statuses.add(child.exitcode if child.exitcode >= 0 else EXIT_FAILED)
                    ended = len(runs) - len(waiting) - len(running)
                    outcome = "done" if child.exitcode == 0 else f"ended with status {child.exitcode}, see its log"
                    say(f"{ended} of {len(runs)}: {run.run}: {outcome} ({duration(time.monotonic() - begin)})")
                if request.signum and not passed_on:
                    passed_on = True
                    for child, *_ in running.values():
                        os.kill(child.pid, request.signum)
        except KeyboardInterrupt:
            for child, *_ in running.values():
                child.kill()
            return EXIT_INTERRUPTED
    if request.signum:
        return EXIT_STATUS[signal.Signals(request.signum)]
    return EXIT_FAILED if EXIT_FAILED in statuses else max(statuses)


def _child(run: Run, path: Path, act: Act, parent: int) -> None:
    os.setpgrp()  # Ctrl-C reaches the parent alone, which passes it on
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    sys.stdout = sys.stderr = (run.directory / "log").open("a", buffering=1, encoding="utf-8")
    for stream in (1, 2):
        os.dup2(sys.stdout.fileno(), stream)
    from pne.engine.processes import joined

    with listening() as request, joined("cpu") as processes:
        if os.getppid() != parent:  # it died before it could have been noticed
            return
        sys.exit(run_each([path], lambda path: act(path, processes, request), request, keep_going=False))
