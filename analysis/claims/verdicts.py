"""Whether the paper's claims hold, in its own printed numbers and in the measured ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from analysis.claims import Check, Claim, Place, column_of
from analysis.statistics import (
    ImageCounts,
    Interval,
    common_images,
    draw_images,
    interval,
    miou,
    read_counts,
    resample_seeds,
    streams,
)
from analysis.tables.values import Series, series_of
from pne.errors import UserError
from pne.spec import ResolvedTrack
from pne.spec.schema import Table

Verdict = Literal["held", "not held", "undecided", "not comparable", "not measured", "not reported"]

# Of a claim with several checks, the first of these that one of them has.
_PRECEDENCE: tuple[Verdict, ...] = ("not held", "not measured", "not reported", "undecided", "not comparable", "held")
RESAMPLES = 1000
NO_INTERVAL = "one seed, no interval"


@dataclass(frozen=True)
class Outcome:
    """One check, held against printed and measured values.

    Attributes
    ----------
    check : Check
    places : tuple of Place
        Cells it is computed from.
    published : float or None
        The quantity in the paper's printed values.
    published_verdict, verdict : str
    measured : float or None
        The quantity in the measured values, means over seeds.
    interval : Interval or None
        Its 95 % interval; None where neither images nor seeds could be resampled.
    seeds : int
    reason : str
        Why a check with a measured value is undecided, where its interval does not say it.
    remarks : tuple of str
        LaTeX text.
    """

    check: Check
    places: tuple[Place, ...]
    published: float | None
    published_verdict: Verdict
    verdict: Verdict
    measured: float | None = None
    interval: Interval | None = None
    seeds: int = 0
    reason: str = ""
    remarks: tuple[str, ...] = ()


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on a claim from those on its checks: it holds if all hold, it fails if one fails."""
    found = set(verdicts)
    return next(verdict for verdict in _PRECEDENCE if verdict in found)


def judge(check: Check, found: Interval) -> Verdict:
    """Compare an estimate and its interval with the bounds of a check.

    Held: the whole interval keeps the bounds. Not held: the whole interval is beyond one of them. Bounds of 0 ask for
    more (or less) than 0, others include their value.
    """
    low, high = round(found.low, 9), round(found.high, 9)  # printed decimals, not their binary neighbours
    inside, outside = True, False
    if check.minimum is not None:
        beyond = 0.0 if check.minimum == 0 else -1e-9
        inside &= low > check.minimum + beyond
        outside |= high <= check.minimum + beyond
    if check.maximum is not None:
        beyond = 0.0 if check.maximum == 0 else 1e-9
        inside &= high < check.maximum + beyond
        outside |= low >= check.maximum + beyond
    return "held" if inside else "not held" if outside else "undecided"


class Judge:
    """Judges checks on one track.

    Parameters
    ----------
    track : ResolvedTrack
    tables : mapping of str to Table
        All declared tables, those that the track does not offer included.
    values : DataFrame
        From `analysis.tables.values.collect_values`.
    seed : int
        Of the bootstrap; the same for every check, so that verdicts can be made again.
    """

    def __init__(self, track: ResolvedTrack, tables: Mapping[str, Table], values: pd.DataFrame, seed: int = 0) -> None:
        self._track, self._tables, self._seed = track, tables, seed
        self._lines = dict(list(values.groupby(["table", "row", "column"], sort=False)))
        self._counts: dict[Path, ImageCounts] = {}
        self._weights: dict[int, np.ndarray] = {}
        self._miou: dict[Path, np.ndarray] = {}

    def outcomes(self, claim: Claim) -> list[Outcome]:
        """Judge every check of a claim."""
        return [self.outcome(check) for check in claim.checks]

    def outcome(self, check: Check) -> Outcome:
        """Judge one check."""
        places = tuple(check.places(self._tables))
        published, published_verdict = self._published(check, places)
        comparable = check.of_sign or self._track.declaration.comparable
        outcome = partial(Outcome, check, places, published, published_verdict)
        try:
            measured, found, seeds, remarks = self._measured(check, places)
        except _NotMeasured as missing:
            return outcome("not measured" if comparable else "not comparable", remarks=missing.remarks)
        outcome = partial(outcome, measured=measured, interval=found, seeds=seeds, remarks=remarks)
        if not comparable:
            return outcome("not comparable")
        if found is None:
            return outcome("undecided", reason=NO_INTERVAL)
        return outcome(judge(check, found))

    def _published(self, check: Check, places: Sequence[Place]) -> tuple[float | None, Verdict]:
        cells = [self._tables[place.table].rows[place.row].published.get(place.column) for place in places]
        values = [None if cell is None else cell.value for cell in cells]
        if any(value is None for value in values):
            return None, "not reported"
        found = round(float(check.quantity([np.array([value]) for value in values])[0]), 9)
        return found, judge(check, Interval(found, found, found))

    def _measured(self, check: Check, places: Sequence[Place]) -> tuple[float, Interval | None, int, tuple[str, ...]]:
        series = [self._series(place) for place in places]
        remarks = tuple(dict.fromkeys(note for one in series for note in one.notes))
        seeds = sorted(set.intersection(*(set(one.by_seed) for one in series)))
        if not seeds:
            raise _NotMeasured(remarks)
        values = [np.array([[one.by_seed[seed] for seed in seeds]]) for one in series]  # (1, S) each
        estimate = float(check.quantity([value.mean(1) for value in values])[0])
        of_images = all(column_of(place, self._tables).metric == "miou" for place in places)
        if len(seeds) == 1 and not of_images:
            return estimate, None, 1, remarks
        try:
            resampled = self._resample_images(places, seeds) if of_images else np.stack(values, 1)
        except UserError as error:
            raise _NotMeasured((*remarks, str(error))) from error
        resampled = np.broadcast_to(resampled, (RESAMPLES, *resampled.shape[1:]))
        spread = resample_seeds(resampled, check.quantity, streams(self._seed)[1])
        return estimate, interval(estimate, spread), len(seeds), remarks

    def _resample_images(self, places: Sequence[Place], seeds: Sequence[int]) -> np.ndarray:
        """Resample the mIoU of every cell and seed over test images; shape (R, cells, S)."""
        paths = [[self._confusion(place, seed) for seed in seeds] for place in places]
        images = common_images([[self._read(path) for path in group] for group in paths])
        return np.stack([np.stack([self._resampled(path, images) for path in group], 1) for group in paths], 1)

    def _series(self, place: Place) -> Series:
        table = self._track.tables.get(place.table)
        if table is None or not table.available:
            reason = getattr(table, "reason", None) or f"The track has no table {place.table}."
            raise _NotMeasured((reason,))
        series = series_of(self._lines[place]) if place in self._lines else Series()
        if column_of(place, self._tables).kind == "external":
            return replace(series, notes=() if series.by_seed else ("No score of the server is entered.",))
        return series

    def _confusion(self, place: Place, seed: int) -> Path:
        lines = self._lines[place]
        return lines.loc[lines["seed"] == seed, "confusion"].item()

    def _resampled(self, path: Path, images: int) -> np.ndarray:
        """Resample the mIoU of one evaluation, once; all evaluations on as many images see the same draws of them."""
        if images not in self._weights:
            self._weights[images] = draw_images(images, RESAMPLES, streams(self._seed)[0])
        if path not in self._miou:
            self._miou[path] = miou(self._read(path), self._weights[images])
        return self._miou[path]

    def _read(self, path: Path) -> ImageCounts:
        if path not in self._counts:
            self._counts[path] = read_counts(path)
        return self._counts[path]


class _NotMeasured(Exception):
    def __init__(self, remarks: tuple[str, ...]) -> None:
        super().__init__(" ".join(remarks))
        self.remarks = remarks
