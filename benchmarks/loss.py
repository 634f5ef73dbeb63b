"""Cost of each loss beside its own projection head, forward and backward on the same input.

    python benchmarks/loss.py --device cpu --threads 2 --output benchmarks/results/loss_cpu.jsonl

Losses and projection take turns in one process, so that whatever slows the machine down hits all alike. Each line of
the output is one loss and error pattern; a table follows on the terminal.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from pne.losses import AsymmetricContrastLoss, PixelContrastLoss, PNELoss

PATTERNS = ("confusions", "uniform")
TARGETS = {"paper": 0.10, "authors": 0.30}
SIZES = {"images": 4, "features": 512, "dim": 256, "size": 97, "classes": 19}
TINY = {"images": 2, "features": 16, "dim": 8, "size": 17, "classes": 5}


def make_projection(features: int, dim: int) -> nn.Module:
    """Build the projection that a contrast branch has: conv1x1, norm, ReLU, conv1x1."""
    return nn.Sequential(
        nn.Conv2d(features, features, 1), nn.BatchNorm2d(features), nn.ReLU(inplace=True), nn.Conv2d(features, dim, 1)
    )


def make_losses(classes: int, dim: int, memory_size: int) -> dict[str, nn.Module]:
    """Build the losses to measure."""
    return {
        "paper": PNELoss.from_preset("paper"),
        "authors": PNELoss.from_preset("authors"),
        "asymmetric": AsymmetricContrastLoss(),
        "cipc": PixelContrastLoss(),
        f"cipc_memory_{memory_size}": PixelContrastLoss(memory_size=memory_size, num_classes=classes, channels=dim),
    }


def make_predictions(
    pattern: str, images: int, size: int, classes: int, generator: torch.Generator, error_rate: float = 0.1
) -> tuple[Tensor, Tensor]:
    """Draw logits (B, C, h, w) and labels (B, h, w) with a share of errors.

    Parameters
    ----------
    pattern : {'confusions', 'uniform'}
        Each class is mistaken for three others, or for any other: over a thousand sets in a batch of four.
    images, size, classes : int
        B, h = w and C.
    generator : torch.Generator
        On the CPU.
    error_rate : float
    """
    shape = (images, size, size)
    patch = max(1, size // 12)
    few = torch.randint(classes, (images, size // patch + 1, size // patch + 1), generator=generator)
    label = few.repeat_interleave(patch, 1).repeat_interleave(patch, 2)[:, :size, :size]
    kinds = min(3, classes - 1) if pattern == "confusions" else classes - 1
    mistaken = (label + 1 + torch.randint(kinds, shape, generator=generator)) % classes
    predicted = torch.where(torch.rand(shape, generator=generator) < error_rate, mistaken, label)
    logits = torch.randn(images, classes, size, size, generator=generator)
    return logits.scatter_(1, predicted.unsqueeze(1), 6.0), label.contiguous()


def time_call(call: Callable[[], None], device: torch.device) -> tuple[float, float]:
    """Time one call: seconds on the clock, and seconds of all threads on the processor."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start, processor_start = time.perf_counter(), time.process_time()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, time.process_time() - processor_start


def measure_peak(call: Callable[[], None], device: torch.device) -> float:
    """Measure the largest memory allocated during a call beyond what was before, in MiB."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    changes = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda e: e.start_ns()):
        held += change.nbytes()
        peak = max(peak, held)
    return peak / 2**20


def describe(device: torch.device) -> dict[str, Any]:
    """Name the machine."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        name = names[0] if names else platform.processor()
    return {"device": device.type, "device_name": name, "threads": torch.get_num_threads(), "torch": torch.__version__}


def run_benchmark(
    sizes: dict[str, int], device: torch.device, rounds: int, warmup: int, memory_size: int
) -> Iterator[dict[str, Any]]:
    """Measure every loss in every error pattern, and yield one record for each.

    Times are medians over the rounds; `ratio` is the median time of the loss over that of the projection, and
    `spread_s` the distance of the quartiles. A machine that does other work besides delays many short operations more
    than a few long ones; `ratio_processor` compares the processor time of all threads, which that does not count in (on
    CUDA it is the time of launching, which says little).
    """
    generator = torch.Generator().manual_seed(0)
    images, classes, size, dim = (sizes[name] for name in ("images", "classes", "size", "dim"))
    projection = make_projection(sizes["features"], dim).to(device)
    features = torch.randn(images, sizes["features"], size, size, generator=generator).to(device).requires_grad_()
    embeddings = projection(features).detach().requires_grad_()
    target = torch.randn(embeddings.shape, generator=generator).to(device)
    losses = {name: loss.to(device) for name, loss in make_losses(classes, dim, memory_size).items()}
    batches = {
        pattern: tuple(x.to(device) for x in make_predictions(pattern, images, size, classes, generator))
        for pattern in PATTERNS
    }

    def project() -> None:
        features.grad = None
        projection.zero_grad()
        projection(features).backward(target)

    def contrast(loss: nn.Module, batch: tuple[Tensor, ...]) -> None:
        embeddings.grad = None
        loss(embeddings, *batch).backward()

    calls: dict[tuple[str, str], Callable[[], None]] = {}
    for pattern, batch in batches.items():
        for name, loss in losses.items():
            calls[pattern, name] = lambda loss=loss, batch=batch: contrast(loss, batch)
    calls["projection", "projection"] = project
    times: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    processor: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    for turn in range(-warmup, rounds):
        for key, call in calls.items():
            seconds, processor_seconds = time_call(call, device)
            if turn >= 0:
                times[key].append(seconds)
                processor[key].append(processor_seconds)
    del calls["projection", "projection"]
    projection_times = times["projection", "projection"]
    reference = statistics.median(projection_times)
    processor_reference = statistics.median(processor["projection", "projection"])
    embeddings.grad = None
    for (pattern, name), call in calls.items():
        seconds = statistics.median(times[pattern, name])
        peak = measure_peak(call, device)
        embeddings.grad = None
        yield {
            "pattern": pattern,
            "loss": name,
            "time_s": seconds,
            "spread_s": spread(times[pattern, name]),
            "projection_time_s": reference,
            "projection_spread_s": spread(projection_times),
            "ratio": seconds / reference,
            "ratio_processor": statistics.median(processor[pattern, name]) / processor_reference,
            "target": TARGETS.get(name),
            "peak_extra_memory_mib": peak,
            "embeddings_mib": embeddings.numel() * embeddings.element_size() / 2**20,
            "anchors": int(losses[name].statistics["anchors"]),
            "sets": int(losses[name].statistics["sets"]),
            "rounds": rounds,
            **sizes,
            **describe(device),
        }


def spread(seconds: Sequence[float]) -> float:
    """Distance between the quartiles."""
    if len(seconds) < 2:
        return 0.0
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return high - low


def format_table(records: Sequence[dict[str, Any]]) -> str:
    """Lay the records out as a table in Markdown."""
    lines = [
        "| pattern | loss | ms | spread ms | / projection | / CPU time | target | peak extra MiB | anchors | sets |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for record in records:
        target = "-" if record["target"] is None else f"<= {record['target']:.2f}"
        cells = [
            record["pattern"],
            record["loss"],
            f"{1e3 * record['time_s']:.1f}",
            f"{1e3 * record['spread_s']:.1f}",
            f"{record['ratio']:.3f}",
            f"{record['ratio_processor']:.3f}",
            target,
            f"{record['peak_extra_memory_mib']:.0f}",
            str(record["anchors"]),
            str(record["sets"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    first = records[0]
    lines.append(
        f"\nprojection {1e3 * first['projection_time_s']:.1f} ms (spread {1e3 * first['projection_spread_s']:.1f}); "
        f"embeddings {first['embeddings_mib']:.0f} MiB; {first['device_name']}, {first['threads']} threads, "
        f"torch {first['torch']}, {first['rounds']} rounds"
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the losses, write JSON lines and print a table."""
    parser = argparse.ArgumentParser(prog="python benchmarks/loss.py", description=main.__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=11, help="timed calls of each (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=2, help="untimed calls of each (default: %(default)s)")
    parser.add_argument(
        "--memory-size", type=int, default=200, help="length of each queue of the memory (default: %(default)s)"
    )
    parser.add_argument("--tiny", action="store_true", help="small input; the ratios then say nothing")
    parser.add_argument("--output", type=Path, help="file for the JSON lines; standard output if left out")
    args = parser.parse_args(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no CUDA device; run with --device cpu")
    if min(args.threads, args.rounds, args.memory_size) < 1 or args.warmup < 0:
        parser.error("--threads, --rounds and --memory-size must be at least 1, --warmup at least 0")
    torch.set_num_threads(args.threads)
    sizes = TINY if args.tiny else SIZES
    records = []
    for record in run_benchmark(sizes, torch.device(args.device), args.rounds, args.warmup, args.memory_size):
        records.append(record)
        if args.output is None:
            print(json.dumps(record), flush=True)
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text("".join(json.dumps(record) + "\n" for record in records))
    print(format_table(records))


if __name__ == "__main__":
    main()
