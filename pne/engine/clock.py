"""Time per iteration without waiting for the device, and peak memory of one run."""

import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

WARM_UP = 10


class StepClock:
    """Stop-watch of iterations; on CUDA it drops markers and reads them when asked, so nothing waits meanwhile."""

    def __init__(self, device: torch.device) -> None:
        self.on_cuda = device.type == "cuda"
        self._begin: Any = None
        self._spans: list[tuple[Any, Any]] = []

    def _mark(self) -> Any:
        if not self.on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def start(self) -> None:
        """Begin an iteration, before its data are fetched."""
        self._begin = self._mark()

    def stop(self) -> None:
        """End the iteration."""
        self._spans.append((self._begin, self._mark()))

    def take(self) -> list[float]:
        """Return the seconds of the iterations since the last call, and forget them; waits for the device once."""
        spans, self._spans = self._spans, []
        if self.on_cuda:
            if spans:
                spans[-1][1].synchronize()
            return [begin.elapsed_time(end) / 1000 for begin, end in spans]
        return [end - begin for begin, end in spans]


def typical_time(times: Sequence[float], ages: Sequence[int]) -> float:
    """Median time of the iterations after warm-up.

    Parameters
    ----------
    times : sequence of float
        Seconds per iteration.
    ages : sequence of int
        How many iterations the same process had done before; the first 10 of each process are warm-up. Of shorter
        trainings only the first 3, the first, or none are left out.
    """
    for warm_up in (WARM_UP, 3, 1, 0):
        warm = [seconds for seconds, age in zip(times, ages, strict=True) if age >= warm_up]
        if warm:
            return median(warm)
    raise ValueError("no iteration was timed")


def reset_peak_memory(device: torch.device) -> None:
    """Forget the peak so far, so that the next reading belongs to one run (Linux and CUDA)."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # no such switch on this system: the peak then is that of the whole process


def peak_memory_mib(device: torch.device) -> tuple[float, str]:
    """Peak memory since `reset_peak_memory`, in MiB, and what it is: ``cuda_allocated`` or ``resident_set``."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20, "cuda_allocated"
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        peak = next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = used / 2**20 if sys.platform == "darwin" else used / 1024
    return peak, "resident_set"
