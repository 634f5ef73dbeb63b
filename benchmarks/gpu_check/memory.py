"""Out of memory is told as such, with advice that mends it.

On CUDA the process gets a share of the memory. A CPU's memory cannot be taken away so: there the pixels of a forward
pass stand for it.
"""

import gc
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from mmseg.models import EncoderDecoder

from benchmarks.gpu_check.report import Report
from benchmarks.gpu_check.runs import street_images, street_run, street_spec
from pne.evaluate import main as evaluate
from pne.train import main as train


@dataclass
class Memory:
    """The memory of a device, which can be measured and made scarce."""

    device: torch.device
    peak: float = 0.0  # most pixels of a forward pass since `forget`; on CUDA bytes are measured
    limit: float = float("inf")

    def forget(self, limit: float | None = None) -> None:
        """Free what is not needed, measure anew and, unless None, allow so much."""
        gc.collect()
        self.peak = 0.0
        self.limit = limit or float("inf")
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
            total = torch.cuda.get_device_properties(self.device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, self.limit / total), self.device)

    def measured(self) -> float:
        """Return the peak."""
        return torch.cuda.max_memory_reserved(self.device) if self.device.type == "cuda" else self.peak

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the pixels of forward passes inside the block, and refuse too many; on CUDA the device does."""
        extract = EncoderDecoder.extract_feat
        if self.device.type == "cuda":
            yield
            return

        def counting(model: Any, images: torch.Tensor) -> Any:
            self.peak = max(self.peak, images[:, 0].numel())
            if self.peak > self.limit:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than there is.")
            return extract(model, images)

        with mock.patch.object(EncoderDecoder, "extract_feat", counting):
            yield


def told(call: Any, *words: str) -> tuple[int, str]:
    """Call a command; return its exit status and what it printed on standard error."""
    with redirect_stderr(io.StringIO()) as errors:
        status = call(list(words))
    return status, errors.getvalue()


def last_error(text: str) -> str:
    """Return the message in a command's standard error."""
    return next((line for line in reversed(text.splitlines()) if line.startswith("error: ")), "")


def run(report: Report) -> None:
    """Train in too little memory and follow the advice, then evaluate in too little memory."""
    street_images(report)
    memory = Memory(report.device)
    with memory.counted():
        try:
            evaluation(report, memory, training(report, memory))
        finally:
            memory.forget()


def training(report: Report, memory: Memory) -> str:
    """Give a batch as much memory as a part of it takes; returns the spec of what is trained."""
    settings = {"iterations": 2, "save_work": True}
    small, spec = (street_spec(report, name, **settings) for name in ("small", "advised"))
    part = max(2, street_run(report, "any")[0].batch_size // 4)  # one image is too few for batch norm
    memory.forget()
    report.check("a part of the batch is trained", train([small, "--micro-batch", str(part)]), equal=0)
    memory.forget(1.2 * memory.measured())
    status, errors = told(train, spec)
    tries = [{"micro_batch": None, "status": status, "error": last_error(errors)}]
    report.check("too large a batch fails", status, equal=1, error=tries[0]["error"])
    report.check("without a traceback", "Traceback" in errors, equal=False)
    while (advice := re.search(r"--micro-batch (\d+)", errors)) and status and len(tries) < 6:
        memory.forget(memory.limit)
        status, errors = told(train, spec, "--micro-batch", advice[1])
        tries.append({"micro_batch": int(advice[1]), "status": status, "error": last_error(errors)})
    report.check("the advice leads to a training that ends", (len(tries) > 1, status), equal=(True, 0), tries=tries)
    return small


def evaluation(report: Report, memory: Memory, spec: str) -> None:
    """Give an evaluation less and less memory until it fails."""
    words = ("--evaluation", "multi_scale_flip", "--again", spec)
    memory.forget()
    status, errors = told(evaluate, *words)
    report.check("evaluation ends where memory suffices", status, equal=0, error=last_error(errors))
    enough = memory.measured()
    for share in (0.6, 0.4, 0.2, 0.1):  # with less memory other algorithms are chosen: it may suffice
        memory.forget(share * enough)
        status, errors = told(evaluate, *words)
        if status:
            break
    message = last_error(errors)
    about = {"error": message, "share": share}
    report.check("too large an image fails", status, equal=1, **about)
    fits = "out of memory" in message and "micro-batch" not in message and "Traceback" not in errors
    report.check("evaluation out of memory is told, with no advice about batches", fits, equal=True, **about)
