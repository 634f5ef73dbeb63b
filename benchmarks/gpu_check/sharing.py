"""Two trainings that begin at once where there is one GPU: the second waits for the first, and both end well."""

import multiprocessing
import os
import sys
from datetime import datetime
from pathlib import Path

from benchmarks.gpu_check.report import Report
from benchmarks.gpu_check.runs import street_images, street_spec
from pne.engine.locks import VISIBLE
from pne.results import TrainResult, read_result

FORKS = multiprocessing.get_context("forkserver")  # one process imports torch for both, and never touches CUDA
FORKS.set_forkserver_preload(["pne.train", "pne.engine.session"])


def train(spec: str, log: Path, visible: str | None) -> None:
    """Train in a process of its own that prints to ``log``."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if visible is not None:
        os.environ[VISIBLE] = visible
    from pne.train import main

    sys.exit(main([spec]))


def run(report: Report) -> None:
    """Train both, and see that they were not at work at the same time.

    A CPU is not claimed: there a GPU is made up, which the trainings claim, and then train on the CPU.
    """
    street_images(report)
    cuda = report.device.type == "cuda"
    settings = {"iterations": 4 if report.tiny else 40, "device": "cuda" if cuda else "auto"}
    visible = os.environ.get(VISIBLE) if cuda else f"made-up-{os.getpid()}"
    specs = [Path(street_spec(report, name, **settings)) for name in ("first", "second")]
    logs = [spec.with_name("log") for spec in specs]
    jobs = [FORKS.Process(target=train, args=(str(s), log, visible)) for s, log in zip(specs, logs, strict=True)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    texts = [log.read_text() for log in logs]
    last = [text.strip().splitlines()[-1:] for text in texts]
    report.check("two jobs end", [job.exitcode for job in jobs], equal=[0, 0], last_lines=last)
    report.check("jobs that waited", sum("waiting for 1 free GPU" in text for text in texts), equal=1)
    with report.attempt("overlap of two jobs"):
        times = [read_result(spec.parent / "train.json", TrainResult).provenance for spec in specs]
        began = max(datetime.fromisoformat(time.started) for time in times)
        ended = min(datetime.fromisoformat(time.ended) for time in times)
        report.check("overlap of two jobs (s)", (ended - began).total_seconds(), at_most=0)
