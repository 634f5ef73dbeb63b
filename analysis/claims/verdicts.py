"""Whether the paper's claims hold, in its own printed numbers and in the measured ones."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import pandas as pd

from analysis import uncertainty
from analysis.claims import Check, Claim, Place, parse, row_of
from analysis.latex_text import quote
from analysis.tables.values import Series, series_of
from analysis.uncertainty import FEWEST_BLOCKS, Estimate, Interval, Verdict
from pne.errors import UserError
from pne.spec import ResolvedTrack
from pne.spec.schema import Table

MISSING = uncertainty.exact(np.nan)
FEW_BLOCKS = f"Fewer than {FEWEST_BLOCKS} independent blocks of test images: the interval over images is too short."
DECIDED = get_args(Verdict)


class Outcome(NamedTuple):
    """One check, held against printed and measured values.

    Attributes
    ----------
    check : Check
    published : float or None
        The quantity in the paper's printed values.
    published_verdict, verdict : str
        One of `DECIDED`, or not comparable, not measured, not reported.
    measured : Interval or None
        The quantity in the measured values with its 95 % interval over seeds; NaN ends with too few.
    images : Interval or None
        What other test images would give, beside the verdict; None where it is not computed from mIoU.
    p_holds, p_fails : float
        The latter after Holm over the claim's checks.
    seeds : int
        How many all cells have in common.
    remarks : tuple of str
        LaTeX text.
    """

    check: Check
    published: float | None
    published_verdict: str
    verdict: str
    measured: Interval | None
    images: Interval | None
    p_holds: float
    p_fails: float
    seeds: int
    remarks: tuple[str, ...]


def combine(verdicts: list[str]) -> str:
    """Return the verdict on a claim from those on its checks; one without checks is not tested."""
    return str(uncertainty.claim_verdict(verdicts)) if verdicts else "not tested"


def say(verdict: str, track: ResolvedTrack) -> str:
    """Name the data beside a verdict that was not found on the paper's: it says nothing about the paper's."""
    apart = verdict in DECIDED and not track.declaration.comparable
    return f"on {track.declaration.title}: {verdict}" if apart else verdict


class Judge:
    """Judges claims on one track.

    Parameters
    ----------
    track : ResolvedTrack
    tables : mapping of str to Table
        All declared tables, those that the track does not offer included.
    values : DataFrame
        From `analysis.tables.values.collect_values`.
    """

    def __init__(self, track: ResolvedTrack, tables: Mapping[str, Table], values: pd.DataFrame) -> None:
        self._track, self._tables = track, tables
        self._lines = dict(list(values.groupby(["table", "row", "column"], sort=False)))
        self._leave_out = cache(self._without_blocks)

    def outcomes(self, claim: Claim) -> list[Outcome]:
        """Judge every check of a claim, all at once."""
        checks = [parse(text, self._tables) for text in claim.checks]
        if not checks:
            return []
        printed = [self._published(check) for check in checks]
        measured = [self._measured(check) for check in checks]
        families, bounds = (printed, [found for found, *_ in measured]), [check.bounds for check in checks]
        on_paper, on_runs = (uncertainty.judge(estimates, bounds) for estimates in families)
        outcomes = []
        for index, (check, (found, seeds, remarks)) in enumerate(zip(checks, measured, strict=True)):
            images, of_images = self._of_images(check, seeds)
            verdict = "not measured" if found is MISSING else str(on_runs.verdict[index])
            if not (check.of_signs or self._track.declaration.comparable):
                verdict = "not comparable"
            absent = printed[index] is MISSING
            outcomes.append(
                Outcome(
                    check=check,
                    published=None if absent else float(printed[index].value),
                    published_verdict="not reported" if absent else str(on_paper.verdict[index]),
                    verdict=verdict,
                    measured=None if found is MISSING else Interval(*map(float, found.interval())),
                    images=images,
                    p_holds=float(on_runs.p_holds[index]),
                    p_fails=float(on_runs.p_fails[index]),
                    seeds=len(seeds),
                    remarks=remarks + of_images,
                )
            )
        return outcomes

    def _published(self, check: Check) -> Estimate:
        values = self._printed(check)
        if any(np.isnan(value).any() for value in values.values()):
            return MISSING
        return uncertainty.exact(round(float(check.estimate(values).value), 9))

    def _printed(self, check: Check) -> dict[Place, np.ndarray]:
        cells = {place: row_of(place, self._tables).published.get(place.column) for place in check.places}
        return {place: np.array([getattr(cell, "value", None)], np.float64) for place, cell in cells.items()}

    def _measured(self, check: Check) -> tuple[Estimate, list[int], tuple[str, ...]]:
        """Estimate the quantity over the seeds that all trained rows have; others keep their printed values."""
        series = {place: self._series(place) for place in check.places if row_of(place, self._tables).is_trained}
        remarks = tuple(dict.fromkeys(note for one in series.values() for note in one.notes))
        seeds = sorted(set.intersection(*(set(one.by_seed) for one in series.values()))) if series else []
        if not seeds:
            return MISSING, [], remarks
        values = {place: np.array([one.by_seed[seed] for seed in seeds]) for place, one in series.items()}
        return check.estimate(self._printed(check) | values), seeds, remarks

    def _of_images(self, check: Check, seeds: Sequence[int]) -> tuple[Interval | None, tuple[str, ...]]:
        """Compute the quantity without one block of test images after the other, from the counts behind the cells."""
        trained = [place for place in check.places if row_of(place, self._tables).is_trained]
        columns = (self._tables[place.table].columns.get(place.column) for place in trained)
        if not seeds or any(column is None or column.metric != "miou" for column in columns):
            return None, ()
        lines = {place: self._lines[place].set_index("seed").loc[list(seeds)] for place in trained}
        try:
            found = {place: list(map(self._leave_out, of["run"], of["confusion"])) for place, of in lines.items()}
            uncertainty.common_images(names for of_place in found.values() for names, *_ in of_place)
        except UserError as error:
            return None, (quote(str(error)),)
        values = {place: np.stack([values for *_, values in of_place], -1) for place, of_place in found.items()}
        few = any(blocks < FEWEST_BLOCKS for of_place in found.values() for _, blocks, _ in of_place)
        interval = uncertainty.image_interval(check.estimate(self._printed(check) | values).value)
        return interval if np.isfinite(interval.low) else None, (FEW_BLOCKS,) if few else ()

    def _without_blocks(self, run: str, confusion: Path) -> tuple[tuple[str, ...], int, np.ndarray]:
        """Return the images of an evaluation, how many blocks they make, and the mIoU without each, shape (1 + B,)."""
        counts = uncertainty.read_counts(confusion)
        weights = uncertainty.leave_out(uncertainty.image_blocks(counts.names, self._track.runs[run].layout))
        return counts.names, len(weights) - 1, uncertainty.miou(counts, weights)

    def _series(self, place: Place) -> Series:
        table = self._track.tables.get(place.table)
        if table is None or not table.available:
            return Series(notes=(getattr(table, "reason", None) or f"The track has no table {place.table}.",))
        return series_of(self._lines[place]) if place in self._lines else Series(notes=("Nothing is measured here.",))
