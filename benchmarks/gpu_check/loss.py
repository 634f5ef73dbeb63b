"""Each loss alone: time and memory beside its projection head, and how often it makes the host wait for the device."""

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu_check.report import Report
from benchmarks.loss import PATTERNS, SIZES, TINY, make_losses, make_predictions, run_benchmark

SHAPES = {
    "4 x 97 x 97, 19 classes": SIZES,
    "16 x 44 x 44, 11 classes": SIZES | {"images": 16, "size": 44, "classes": 11},
}
KEPT = (
    "time_s",
    "spread_s",
    "projection_time_s",
    "ratio",
    "peak_extra_memory_mib",
    "embeddings_mib",
    "anchors",
    "sets",
)
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "equal")


class WaitingOperations(TorchDispatchMode):
    """Count the operations that would wait for a CUDA device, on any device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, then do what was asked for."""
        name = function.overloadpacket.__name__
        self.found.update([name] if name in WAITING else [])
        return function(*args, **(kwargs or {}))


def waits(call: Callable[[], object], device: torch.device) -> dict[str, int]:
    """Count the waits for the device in a call, by line on CUDA, elsewhere by operation that would wait."""
    if device.type != "cuda":
        with WaitingOperations() as mode:
            call()
        return dict(mode.found)
    call()  # what is done once alone, such as choosing algorithms, does not count
    torch.cuda.synchronize(device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    places = [f"{Path(w.filename).name}:{w.lineno}" for w in caught if "synchroniz" in str(w.message)]
    return dict(Counter(places))


def run(report: Report) -> None:
    """Measure every loss in both error patterns, and count its waits."""
    device, rounds, memory_size = report.device, 1 if report.tiny else 15, 20 if report.tiny else 5000
    for shape, sizes in {"tiny": TINY}.items() if report.tiny else SHAPES.items():
        generator = torch.Generator().manual_seed(0)
        images, dim, size, classes = (sizes[name] for name in ("images", "dim", "size", "classes"))
        embeddings = torch.randn(images, dim, size, size, generator=generator).to(device, torch.bfloat16)
        logits, labels = make_predictions(PATTERNS[0], images, size, classes, generator)
        batch = embeddings.requires_grad_(), logits.to(device, torch.bfloat16), labels.to(device)
        for name, loss in make_losses(classes, dim, memory_size).items():
            with report.attempt(f"waits of {name}, {shape}"):
                loss.to(device)
                found = waits(lambda loss=loss, batch=batch: loss(*batch).backward(), device)
                report.check(f"waits of {name}, {shape}", sum(found.values()), at_most=0, places=found)
        with report.attempt(f"costs, {shape}"):
            for line in run_benchmark(sizes, device, rounds, 1 if report.tiny else 3, memory_size):
                report.tell(f"cost of {line['loss']}, {line['pattern']}, {shape}", **{key: line[key] for key in KEPT})
