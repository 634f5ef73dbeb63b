"""Samples per second of the training loader against a step of 17 ms: a GPU must not wait for its data."""

import os
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import cv2
import torch

from benchmarks.gpu_check.report import Report
from benchmarks.gpu_check.runs import street_images, street_run
from benchmarks.loader import build, seconds
from pne.datasets.positioned import PositionedInfiniteSampler
from pne.engine.loaders import end_workers, train_loader
from pne.engine.processes import Processes
from pne.engine.runner import prepare

STEP_MS = 17.0


def batches(config: dict[str, Any], workers: int, device: torch.device) -> Iterator[Any]:
    """Iterate over the batches of a run's training loader; its workers end with the iterator."""
    loader = train_loader({**config, "num_workers": workers}, 0, Processes(0, 1, device))
    try:
        yield from loader
    finally:
        end_workers(loader)


def run(report: Report) -> None:
    """Measure the loader with the track's workers, and with others."""
    street_images(report)
    run, plain = street_run(report, "loader")
    config = prepare(run, plain)["train_dataloader"]
    torch.set_num_threads(run.runtime.threads)
    cv2.setNumThreads(0)
    with report.attempt("one core"):
        dataset = build(config["dataset"]["dataset"], "pne cached")
        draws = list(islice(PositionedInfiniteSampler(dataset, seed=0), 4 if report.tiny else 96))
        report.tell("one core", samples_per_second=1 / seconds(dataset, draws, "pne cached"))
    number, usable = 2 if report.tiny else 120, len(os.sched_getaffinity(0))
    own = run.runtime.workers
    for workers in sorted({own, 1} if report.tiny else {own, 4, 8, 12}):
        what = f"milliseconds per batch of {run.batch_size}, {workers} workers"
        if workers != own and workers > usable:
            report.skip(what, f"{usable} cores")
            continue
        with report.attempt(what):
            source = batches(config, workers, report.device)
            for _ in range(1 + 3 * workers):  # first what the workers had prepared while nobody asked
                next(source)
            began = time.perf_counter()
            for _ in range(number):
                next(source)
            spent = time.perf_counter() - began
            source.close()
            about = {"samples_per_second": number * run.batch_size / spent, "cores": usable, "workers": workers}
            if workers == own:
                report.check(what, 1e3 * spent / number, at_most=STEP_MS, timing=True, **about)
            else:
                report.tell(what, value=1e3 * spent / number, **about)
