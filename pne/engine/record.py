"""What a training says about itself: scalars, time and memory, kept on the device and read at intervals."""

import json
import math
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from pne.engine.command import DivergenceError
from pne.engine.processes import Processes
from pne.errors import UserError
from pne.files import write_text
from pne.results import ContrastSummary

LAST_SHARE = 10  # the last tenth of the iterations is averaged for the result
HEALTHY = 0.9
WARM_UP = 10


class Record:
    """Collect the scalars of a training without waiting for the device each iteration.

    `note` keeps detached tensors; `read` fetches all of them at once, checks that they are finite and adds them up.

    Parameters
    ----------
    iterations : int
        Length of the training.
    contrast_start : int or None
        First iteration (counted from 0) with a contrastive term; None without one.
    processes : Processes
        Scalars are averaged over them.

    Attributes
    ----------
    times : list of float
        Seconds of every iteration so far.
    ages : list of int
        Number of iterations that the process had done before each of `times`.
    """

    def __init__(self, iterations: int, contrast_start: int | None, processes: Processes) -> None:
        self.iterations = iterations
        self.contrast_start = contrast_start
        self.processes = processes
        self._names: list[str] = []
        self._unread: list[Tensor] = []
        self._first_unread = 0
        self._window = new_window()
        self._tail: dict[str, Any] = {"count": 0, "sums": {}}
        self._contrast = {"iterations": 0, "active": 0}
        self.times: list[float] = []
        self._waits: list[float] = []
        self.ages: list[int] = []

    @property
    def first_health_iteration(self) -> int:
        """First iteration (from 0) of the health summary: after the start of the term and a tenth as warm-up."""
        return max(self.contrast_start or 0, self.iterations // LAST_SHARE)

    @property
    def data_s(self) -> float | None:
        """Typical seconds of an iteration in which data were waited for; None where nothing was noted.

        Checkpoints of before waits were recorded leave the first iterations without.
        """
        return typical_time(self._waits, self.ages[-len(self._waits) :]) if self._waits else None

    def note(self, iteration: int, scalars: Mapping[str, Tensor]) -> None:
        """Keep the scalars of one iteration (counted from 0); nothing is read yet."""
        scalars = {short_name(name): value for name, value in scalars.items()}
        if not self._unread:
            self._first_unread = iteration
            self._names = list(scalars)
        elif list(scalars) != self._names:
            raise RuntimeError(f"iteration {iteration + 1}: logged {list(scalars)}, before {self._names}")
        self._unread.append(torch.stack([value.detach().to(torch.float64).reshape(()) for value in scalars.values()]))

    def read(self, times: list[float], waits: list[float], first_age: int) -> None:
        """Fetch the noted scalars and add them to the sums.

        Parameters
        ----------
        times : list of float
            Seconds of the same iterations.
        waits : list of float
            Seconds of them in which their data were waited for.
        first_age : int
            Number of iterations that this process had done before the first of them.

        Raises
        ------
        DivergenceError
            If a loss is NaN or infinite, with the first such iteration and all loss terms of it.
        """
        if not self._unread:
            return
        rows = self.processes.mean(torch.stack(self._unread).cpu()).tolist()
        self._unread = []
        for offset, row in enumerate(rows):
            iteration, values = self._first_unread + offset, dict(zip(self._names, row, strict=True))
            self._check_finite(iteration, values)
            self._add(iteration, values)
        self.times += times
        self._waits += waits
        self.ages += range(first_age, first_age + len(times))
        self._window["time"] += sum(times)
        self._window["data"] += sum(waits)

    def _check_finite(self, iteration: int, values: dict[str, float]) -> None:
        losses = {name: value for name, value in values.items() if "loss" in name}
        if not all(map(math.isfinite, losses.values())):
            terms = ", ".join(f"{name} = {value:.6g}" for name, value in losses.items())
            raise DivergenceError(iteration + 1, f"the loss is not finite: {terms}; lower the learning rate")

    def _add(self, iteration: int, values: dict[str, float]) -> None:
        sums = [self._window]
        if iteration >= self.iterations - max(1, self.iterations // LAST_SHARE):
            sums.append(self._tail)
        for target in sums:
            target["count"] += 1
            for name, value in values.items():
                target["sums"][name] = target["sums"].get(name, 0.0) + value
        if self.contrast_start is not None and iteration >= self.first_health_iteration:
            self._contrast["iterations"] += 1
            has_anchors = values.get("contrast_anchors", 1) > 0  # a loss of one's own may not count them
            self._contrast["active"] += int(values["loss_contrast"] > 0 and has_anchors)

    def take_window(self) -> dict[str, float]:
        """Return the means since the last call, ``time_s`` and ``data_s`` among them, and start a new window."""
        window, self._window = self._window, new_window()
        sums = window["sums"] | {"time_s": window["time"], "data_s": window["data"]}
        return {name: value / max(window["count"], 1) for name, value in sums.items()}

    def final_losses(self) -> dict[str, float]:
        """Mean of each loss over the last tenth of the iterations."""
        return {name: value for name, value in self._final().items() if "loss" in name}

    def contrast_summary(self) -> ContrastSummary | None:
        """Say how often the contrastive term was at work, and its statistics in the end; None without one."""
        if self.contrast_start is None:
            return None
        total, final = self._contrast["iterations"], self._final()
        active = self._contrast["active"] / total if total else 0.0
        return ContrastSummary(
            iterations=total,
            active_fraction=active,
            healthy=active >= HEALTHY,
            final_statistics={
                name.removeprefix("contrast_"): value
                for name, value in final.items()
                if name == "loss_contrast" or name.startswith("contrast_")
            },
        )

    def _final(self) -> dict[str, float]:
        return {name: value / self._tail["count"] for name, value in self._tail["sums"].items()}

    def state_dict(self) -> dict[str, Any]:
        """Return everything read so far, as tensors and plain values."""
        return {
            "window": self._window,
            "tail": self._tail,
            "contrast": self._contrast,
            "times": torch.tensor(self.times, dtype=torch.float64),
            "waits": torch.tensor(self._waits, dtype=torch.float64),
            "ages": torch.tensor(self.ages, dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self._window, self._tail, self._contrast = new_window() | state["window"], state["tail"], state["contrast"]
        self.times, self.ages = state["times"].tolist(), state["ages"].tolist()
        self._waits = state["waits"].tolist() if "waits" in state else []


def new_window() -> dict[str, Any]:
    """Return the sums of no iteration."""
    return {"count": 0, "sums": {}, "time": 0.0, "data": 0.0}


def short_name(name: str) -> str:
    """Drop the head's prefix from the names of the contrast branch.

    >>> short_name("decode.loss_contrast"), short_name("decode_1.contrast_anchors"), short_name("decode.loss_ce")
    ('loss_contrast', 'contrast_anchors', 'decode.loss_ce')
    """
    last = name.rsplit(".", 1)[-1]
    return last if last == "loss_contrast" or last.startswith("contrast_") else name


class History:
    """``history.jsonl``: one line per log interval, for the figures.

    Keys: ``iter`` (iterations done), ``lr``, ``time_s``, ``data_s``, and the means of every scalar over the interval.
    """

    def __init__(self, path: Path, enabled: bool = True) -> None:
        self.path = path
        self.enabled = enabled

    def rewind(self, iteration: int) -> None:
        """Drop the lines after ``iteration``, which a resumed run writes again, and a torn last line."""
        if not self.enabled:
            return
        kept = []
        if self.path.is_file() and iteration:
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    if json.loads(line)["iter"] <= iteration:
                        kept.append(line)
                except (ValueError, KeyError):
                    break
        write_text(self.path, "".join(f"{line}\n" for line in kept))

    def append(self, line: Mapping[str, float]) -> None:
        """Add one line.

        Raises
        ------
        UserError
            If it cannot be written, such as on a full disk.
        """
        if not self.enabled:
            return
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror}); free space and train on") from error


class StepClock:
    """Stop-watch of iterations; on CUDA it drops markers and reads them when asked, so nothing waits meanwhile."""

    def __init__(self, device: torch.device) -> None:
        self.on_cuda = device.type == "cuda"
        self._begin: Any = None
        self._began = 0.0
        self._waits: list[float] = []
        self._spans: list[tuple[Any, Any]] = []

    def _mark(self) -> Any:
        if not self.on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def start(self) -> None:
        """Begin an iteration, before its data are fetched."""
        self._begin, self._began = self._mark(), time.perf_counter()

    def fetched(self) -> None:
        """Note that the data are there."""
        self._waits.append(time.perf_counter() - self._began)

    def stop(self) -> None:
        """End the iteration."""
        self._spans.append((self._begin, self._mark()))

    def take(self) -> tuple[list[float], list[float]]:
        """Return the seconds of the iterations since the last call, and those of them in which data were waited for.

        It forgets both, and waits for the device once.
        """
        spans, waits, self._spans, self._waits = self._spans, self._waits, [], []
        if self.on_cuda:
            if spans:
                spans[-1][1].synchronize()
            return [begin.elapsed_time(end) / 1000 for begin, end in spans], waits
        return [end - begin for begin, end in spans], waits


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
