"""How long runs take on the device they are for: measured, rehearsed, or the paper's seconds per iteration."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import pandas as pd

from pne.errors import UserError
from pne.resolve import ResolvedTrack
from pne.spec import Run

Source = Literal["finished runs", "rehearsals", "the paper"]


@dataclass(frozen=True)
class Cost:
    """Seconds of one training iteration of a run, and where the number comes from."""

    time_s: float
    source: Source


def estimate(track: ResolvedTrack, frame: pd.DataFrame, rehearsals: Mapping[str, float]) -> dict[str, Cost]:
    """Estimate every run of a track, as far as something is known.

    Parameters
    ----------
    track : ResolvedTrack
    frame : DataFrame
        From `analysis.results.collect_runs`.
    rehearsals : mapping of str to float
        Run id -> seconds per iteration.

    Returns
    -------
    dict of str to Cost
        By run id. First come finished runs (of the run itself, else of the same model, data set and loss), then
        rehearsals (alike), then, on the paper's own data sets, the seconds per iteration that the paper prints for the
        model on any data set. Runs of which nothing is known are left out.
    """
    measured = {row["run"]: float(row["time_s"]) for row in frame.to_dict("records") if not pd.isna(row["time_s"])}
    sources: list[tuple[Source, Mapping[str, float], Mapping[tuple, float]]] = [
        ("finished runs", measured, _by_kind(track.runs, measured)),
        ("rehearsals", rehearsals, _by_kind(track.runs, rehearsals)),
    ]
    printed = printed_times(track) if track.declaration.comparable else {}
    found = {}
    for key, run in track.runs.items():
        for source, by_run, by_kind in sources:
            time_s = by_run.get(key, by_kind.get(_kind(run)))
            if time_s is not None:
                found[key] = Cost(time_s, source)
                break
        else:
            time_s = printed.get((run.model, run.contrast is not None))
            if time_s is not None:
                found[key] = Cost(time_s, "the paper")
    return found


def read_rehearsals(folder: Path) -> dict[str, float]:
    """Read the seconds per iteration of rehearsed runs, ``<folder>/*.json`` with keys ``run`` and ``time_s``.

    Raises
    ------
    UserError
        If a file does not hold both.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found[str(content["run"])] = float(content["time_s"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}: expected a rehearsal with run and time_s ({error}); delete it and rehearse again"
            ) from error
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


def _by_kind(runs: Mapping[str, Run], times: Mapping[str, float]) -> dict[tuple, float]:
    gathered: dict[tuple, list[float]] = {}
    for key, time_s in times.items():
        if key in runs:
            gathered.setdefault(_kind(runs[key]), []).append(time_s)
    return {kind: median(values) for kind, values in gathered.items()}


def total_hours(runs: Iterable[str], track: ResolvedTrack, costs: Mapping[str, Cost]) -> tuple[float, int]:
    """Return the hours of the runs whose cost is known, and how many are not."""
    known = [run for run in runs if run in costs]
    unknown = sum(1 for run in runs if run not in costs)
    return sum(track.runs[run].iterations * costs[run].time_s for run in known) / 3600, unknown
