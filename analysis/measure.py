"""From the data frame of results to the measured values of one row and column, with what a reader must know of them."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from analysis.latex_text import quote
from pne.declaration.schema import Column
from pne.resolve import ResolvedRow, ResolvedTable

STALE = "Stale: measured with other training code than today's."
MIXED = "Stale: resumed with other training code than it began with."
OUTDATED = "Outdated: evaluated on the weights of an earlier training."
PARTIAL = "Trained on a part of the data set: not comparable with published values."
BFLOAT16 = "Evaluated in bfloat16."
_ERROR_WIDTH = 160


@dataclass(frozen=True)
class Series:
    """Values of one row and column.

    Attributes
    ----------
    by_seed : mapping of int to float
        Values in the column's unit.
    asked : int
        Number of seeds that the row has runs for.
    notes : tuple of str
        LaTeX text.
    """

    by_seed: Mapping[int, float] = field(default_factory=dict)
    asked: int = 0
    notes: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return fmean(self.by_seed.values()) if self.by_seed else None

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over seeds; None for one seed."""
        return stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    def minus(self, other: "Series") -> float | None:
        """Mean difference over the seeds that both have."""
        seeds = self.by_seed.keys() & other.by_seed.keys()
        return fmean(self.by_seed[s] - other.by_seed[s] for s in seeds) if seeds else None


class Measurements:
    """Looks values up in a data frame of `analysis.results.collect_runs`."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._records: dict[tuple[str, str], dict[str, Any]] = {
            (record["run"], record["evaluation"]): record for record in frame.to_dict("records")
        }
        self._of_run: dict[str, dict[str, Any]] = {}
        for (run, _), record in self._records.items():
            self._of_run.setdefault(run, record)

    def record(self, run: str, evaluation: str | None = None) -> dict[str, Any]:
        """Return what is known of a run (and evaluation); an unknown run is missing."""
        found = self._of_run.get(run) if evaluation is None else self._records.get((run, evaluation))
        return {"state": "missing"} if found is None else found

    def series(self, row: ResolvedRow, column: Column, table: ResolvedTable) -> Series:
        """Return the measured values of a row and metric column.

        ``miou`` and ``iou:<class>`` come from the column's evaluation (default: the table's), ``time_s`` and
        ``weight_std`` from training.
        """
        metric = column.metric or "miou"
        of_training = metric in ("time_s", "weight_std")
        evaluation = None if of_training else column.evaluation or table.declaration.evaluation
        values: dict[int, float] = {}
        reasons: dict[int, str] = {}
        notes: list[str] = []
        for seed, run in row.runs.items():
            record = self.record(run, evaluation)
            value = _value(record, metric)
            if value is None:
                reasons[seed] = _reason(record, metric)
                continue
            values[seed] = value
            notes.extend(_warnings(record, of_training))
        if reasons:
            notes.insert(0, _gap(reasons, len(row.runs)))
        return Series(values, len(row.runs), tuple(dict.fromkeys(notes)))

    def conditions(self, table: ResolvedTable, key: str) -> Counter[Any]:
        """Count the values of a provenance column (or a tuple of them) over the finished runs of a table."""
        runs = {run for row in table.rows.values() for run in row.runs.values()}
        found = (_condition(self.record(run), key) for run in runs)
        return Counter(value for value in found if value is not None)

    def condition(self, row: ResolvedRow, key: str) -> set[Any]:
        """Return the values of a provenance column over the finished runs of a row."""
        found = {_condition(self.record(run), key) for run in row.runs.values()}
        return {value for value in found if value is not None}


def _condition(record: Mapping[str, Any], key: str) -> Any:
    if key == "batch":
        world, micro = record.get("world_size"), record.get("micro_batch")
        return None if _absent(world) or _absent(micro) else (int(world), int(micro))
    value = record.get(key)
    return None if _absent(value) else value


def _value(record: Mapping[str, Any], metric: str) -> float | None:
    if metric.startswith("iou:"):
        by_class = record.get("class_iou")
        value = by_class.get(metric.removeprefix("iou:")) if isinstance(by_class, dict) else None
    else:
        value = record.get(metric)
    return None if _absent(value) else float(value)


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _reason(record: Mapping[str, Any], metric: str) -> str:
    state = record["state"]
    if state == "finished":
        return f"The result holds no {quote(metric)}."
    trained = not _absent(record.get("time_s"))
    iteration = record.get("iteration")
    at = "" if trained or _absent(iteration) or iteration == 0 else f" at iteration {int(iteration)}"
    if state == "failed":
        error = str(record["error"])
        short = error if len(error) <= _ERROR_WIDTH else f"{error[: _ERROR_WIDTH - 1]}…"
        return f"{'Trained, but the evaluation failed' if trained else 'Failed'}{at}: {quote(short)}"
    if trained:
        return "Trained, but not evaluated yet."
    if state in ("running", "stopped"):
        return f"{'Still running' if state == 'running' else 'Stopped'}{at}."
    return "Not run yet."


def _gap(reasons: Mapping[int, str], asked: int) -> str:
    """Say why values are missing, in one note."""
    if len(reasons) == asked and len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    detail = " ".join(f"Seed {seed}: {reason[0].lower()}{reason[1:]}" for seed, reason in reasons.items())
    return f"n = {asked - len(reasons)} of {asked} seeds. {detail}"


def _warnings(record: Mapping[str, Any], of_training: bool) -> list[str]:
    notes = []
    if record.get("mixed_code") is True:
        notes.append(MIXED)
    elif record.get("stale") is True:
        notes.append(STALE)
    if record.get("outdated") is True and not of_training:
        notes.append(OUTDATED)
    if record.get("bfloat16") is True and not of_training:
        notes.append(BFLOAT16)
    if record.get("dataset_complete") is False:
        notes.append(PARTIAL)
    if record.get("healthy") is False:
        share = 100 * float(record["active_fraction"])
        notes.append(rf"Unhealthy contrast: the term was active in only {share:.0f}\,\% of the iterations.")
    return notes
