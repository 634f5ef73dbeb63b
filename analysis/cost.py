"""What runs take of the device they are for: measured, rehearsed, or the paper's seconds per iteration."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from pne.rehearsal.record import Rehearsal, read_content
from pne.resolve import ResolvedTrack
from pne.spec import Run


@dataclass(frozen=True)
class Measured:
    """What a run took.

    Attributes
    ----------
    time_s : float
        Device seconds of one training iteration: its seconds times the devices that share it.
    device : str
        Name of the device.
    gpu_memory_mib : float or None
        Most memory of one GPU; None where no GPU was measured.
    """

    time_s: float
    device: str
    gpu_memory_mib: float | None = None


@dataclass(frozen=True)
class Cost:
    """What a run is expected to take: device seconds of one iteration, memory of a GPU in MiB, and who says so."""

    time_s: float
    source: str
    gpu_memory_mib: float | None = None


def estimate(track: ResolvedTrack, frame: pd.DataFrame, rehearsals: Mapping[str, Measured]) -> dict[str, Cost]:
    """Estimate every run of a track, as far as something is known.

    Parameters
    ----------
    track : ResolvedTrack
    frame : DataFrame
        From `analysis.results.collect_runs`.
    rehearsals : mapping of str to Measured
        By run id.

    Returns
    -------
    dict of str to Cost
        By run id. First come finished runs (of the run itself, else of the same model, data set and loss), then
        rehearsals (alike), then, on the paper's own data sets, the seconds per iteration that the paper prints for the
        model on any data set. Runs of which nothing is known are left out.
    """
    measured = {row["run"]: _of_finished(row) for row in frame.to_dict("records") if not pd.isna(row["time_s"])}
    sources: list[tuple[str, Mapping[str, Measured], Mapping[tuple, Measured]]] = [
        ("finished runs", measured, _by_kind(track.runs, measured)),
        ("rehearsals", rehearsals, _by_kind(track.runs, rehearsals)),
    ]
    printed = printed_times(track) if track.declaration.comparable else {}
    found = {}
    for key, run in track.runs.items():
        for source, by_run, by_kind in sources:
            known = by_run.get(key, by_kind.get(_kind(run)))
            if known is not None:
                found[key] = Cost(known.time_s, f"{source} on {known.device}", known.gpu_memory_mib)
                break
        else:
            time_s = printed.get((run.model, run.contrast is not None))
            if time_s is not None:
                found[key] = Cost(time_s, "the paper")
    return found


def read_rehearsals(folder: Path) -> dict[str, Measured]:
    """Read what rehearsals at the runs' own size took, for every run that they stand for.

    Raises
    ------
    UserError
        If a file does not hold a rehearsal.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        record = read_content(path, Rehearsal)
        on_gpu = record.memory_kind == "cuda_allocated"
        provenance = record.provenance
        memory = record.highest_memory_mib if on_gpu else None
        measured = Measured(record.time_s * provenance.world_size, provenance.device, memory)
        for run in record.runs:
            found.setdefault(run, measured)
        found[record.run] = measured
    return found


def printed_times(track: ResolvedTrack) -> dict[tuple[str, bool], float]:
    """Return the seconds per iteration that the paper prints, by model and whether a contrast is added."""
    found: dict[tuple[str, bool], float] = {}
    for table in track.tables.values():
        columns = [key for key, column in table.declaration.columns.items() if column.metric == "time_s"]
        for row in table.rows.values():
            for column in columns:
                cell = row.declaration.published.get(column)
                if cell is None or cell.value is None or not row.runs:
                    continue
                run = track.runs[next(iter(row.runs.values()))]
                found.setdefault((run.model, run.contrast is not None), cell.value)
    return found


def _kind(run: Run) -> tuple:
    return run.dataset, run.model, None if run.contrast is None else run.contrast["loss"]


def _by_kind(runs: Mapping[str, Run], known: Mapping[str, Measured]) -> dict[tuple, Measured]:
    gathered: dict[tuple, list[Measured]] = {}
    for key, measured in known.items():
        if key in runs:
            gathered.setdefault(_kind(runs[key]), []).append(measured)
    return {kind: _typical(values) for kind, values in gathered.items()}


def _typical(values: Sequence[Measured]) -> Measured:
    devices = " or ".join(sorted({value.device for value in values}))
    return Measured(median(value.time_s for value in values), devices, highest_memory(values))


def _of_finished(row: Mapping[str, Any]) -> Measured:
    on_gpu = row["memory_kind"] == "cuda_allocated"
    memory = float(row["peak_memory_mib"]) if on_gpu else None
    return Measured(float(row["time_s"]) * int(row["world_size"]), row["device"], memory)


def highest_memory(costs: Iterable[Measured | Cost]) -> float | None:
    """Return the most memory of a GPU that any of them took, in MiB; None if none is known."""
    return max((cost.gpu_memory_mib for cost in costs if cost.gpu_memory_mib is not None), default=None)


def total_hours(runs: Iterable[str], track: ResolvedTrack, costs: Mapping[str, Cost]) -> tuple[float, int]:
    """Return the device hours of the runs whose cost is known, and how many are not."""
    known = [run for run in runs if run in costs]
    unknown = sum(1 for run in runs if run not in costs)
    return sum(track.runs[run].iterations * costs[run].time_s for run in known) / 3600, unknown
