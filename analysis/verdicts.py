"""Whether the paper's claims hold, in its own printed numbers and in the measured ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from analysis.claim_declarations import Check, Claim, Place, column_of
from analysis.external import ExternalScore
from analysis.measure import Measurements, Series
from analysis.statistics import (
    ImageCounts,
    Interval,
    average_seeds,
    common_images,
    draw_images,
    interval,
    miou,
    read_counts,
)
from pne.declaration.schema import Table
from pne.errors import UserError
from pne.resolve import ResolvedTrack

Verdict = Literal["held", "not held", "undecided", "not comparable", "not measured", "not reported"]

# Of a claim with several checks, the first of these that one of them has.
_PRECEDENCE: tuple[Verdict, ...] = (
    "not held",
    "not measured",
    "not reported",
    "undecided",
    "not comparable",
    "held",
)
RESAMPLES = 1000


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
    measured : Interval or None
        Estimate with its 95 % interval; the three are equal where nothing could be resampled.
    seeds : int
    remarks : tuple of str
        LaTeX text.
    """

    check: Check
    places: tuple[Place, ...]
    published: float | None
    published_verdict: Verdict
    measured: Interval | None
    verdict: Verdict
    seeds: int = 0
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
    measurements : Measurements
    scores : sequence of ExternalScore
    seed : int
        Of the bootstrap; the same for every check, so that verdicts can be made again.
    """

    def __init__(
        self,
        track: ResolvedTrack,
        tables: Mapping[str, Table],
        measurements: Measurements,
        scores: Sequence[ExternalScore] = (),
        seed: int = 0,
    ) -> None:
        self._track, self._tables, self._measurements, self._scores = track, tables, measurements, scores
        self._seed = seed
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
        if not check.of_sign and not self._track.declaration.comparable:
            verdict: Verdict | None = "not comparable"
        else:
            verdict = None
        try:
            measured, seeds, remarks = self._measured(check, places)
        except _NotMeasured as reason:
            return Outcome(
                check, places, published, published_verdict, None, verdict or "not measured", 0, reason.remarks
            )
        return Outcome(
            check, places, published, published_verdict, measured, verdict or judge(check, measured), seeds, remarks
        )

    def _published(self, check: Check, places: Sequence[Place]) -> tuple[float | None, Verdict]:
        cells = [self._tables[place.table].rows[place.row].published.get(place.column) for place in places]
        values = [None if cell is None else cell.value for cell in cells]
        if any(value is None for value in values):
            return None, "not reported"
        found = round(float(check.quantity([np.array([value]) for value in values])[0]), 9)
        return found, judge(check, Interval(found, found, found))

    def _measured(self, check: Check, places: Sequence[Place]) -> tuple[Interval, int, tuple[str, ...]]:
        series = [self._series(place) for place in places]
        remarks = tuple(dict.fromkeys(note for one in series for note in one.notes))
        seeds = sorted(set.intersection(*(set(one.by_seed) for one in series)))
        if not seeds:
            raise _NotMeasured(remarks)
        values = [np.array([[one.by_seed[seed] for seed in seeds]]) for one in series]  # (1, S) each
        estimate = float(check.quantity([value.mean(1) for value in values])[0])
        try:
            resampled = check.quantity(self._resample(places, values, seeds))
        except UserError as error:
            raise _NotMeasured((*remarks, str(error))) from error
        if np.ptp(resampled) > 0:
            return interval(estimate, resampled), len(seeds), remarks
        return Interval(estimate, estimate, estimate), len(seeds), remarks

    def _resample(
        self, places: Sequence[Place], values: Sequence[np.ndarray], seeds: Sequence[int]
    ) -> list[np.ndarray]:
        """Resample every cell, mIoU over images and seeds, anything else over seeds; shape (R,) each."""
        generator = np.random.default_rng(self._seed)
        if all(column_of(place, self._tables).metric == "miou" for place in places):
            paths = [[self._confusion(place, seed) for seed in seeds] for place in places]
            images = common_images([[self._read(path) for path in group] for group in paths])
            values = np.stack([np.stack([self._resampled(path, images) for path in group], 1) for group in paths], 1)
            return list(average_seeds(values, generator).T)
        drawn = generator.integers(len(seeds), size=(RESAMPLES, len(seeds)))
        return [value[0][drawn].mean(1) for value in values]

    def _series(self, place: Place) -> Series:
        table = self._track.tables.get(place.table)
        if table is None or not table.available:
            reason = getattr(table, "reason", None) or f"The track has no table {place.table}."
            raise _NotMeasured((reason,))
        row, column = table.rows[place.row], column_of(place, self._tables)
        if column.kind == "external":
            found = [
                score
                for score in self._scores
                if score.belongs_to(self._track.name, place.table, place.row, tuple(row.runs.values()))
            ]
            return Series({0: found[-1].miou}, 1) if found else Series({}, 1, ("No score of the server is entered.",))
        return self._measurements.series(row, column, table)

    def _confusion(self, place: Place, seed: int) -> Path:
        table = self._track.tables[place.table]
        evaluation = column_of(place, self._tables).evaluation or table.declaration.evaluation
        record = self._measurements.record(table.rows[place.row].runs[seed], evaluation)
        return record["confusion"]

    def _resampled(self, path: Path, images: int) -> np.ndarray:
        """Resample the mIoU of one evaluation, once; all evaluations on as many images see the same draws of them."""
        if images not in self._weights:
            self._weights[images] = draw_images(images, RESAMPLES, np.random.default_rng(self._seed))
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
