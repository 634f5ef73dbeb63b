"""From values to the cells of a printed table: means, differences to the baseline, bold face and footnotes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import NamedTuple

import pandas as pd

from analysis.latex_text import quote
from analysis.tables.values import Series, conditions, series_of
from analysis.uncertainty import LEVEL, difference_p, holm, over_seeds
from pne.spec import ResolvedRow, ResolvedTable
from pne.spec.schema import Column, Row

NO_BASELINE = "No difference: the baseline is not measured."
UNFAIR_BEST = "Best mean of its group, but not bold: the rows have been measured with different seeds."


class CellKind(str, Enum):
    """Where the content of a cell comes from."""

    LABEL = "label"
    SETTING = "setting"
    PAPER = "paper"  # printed in the paper, from its authors' own run
    QUOTED = "quoted"  # printed in the paper, from the literature
    QUOTED_ZOO = "quoted-zoo"  # printed in the paper, from the mmsegmentation zoo (the paper's dagger)
    NOT_REPORTED = "not-reported"  # the paper prints "-"
    MEASURED = "measured"
    EXTERNAL = "external"  # entered by hand from an evaluation server
    MISSING = "missing"  # to be measured, but no result is there
    EMPTY = "empty"  # nothing to measure here


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes
    ----------
    kind : CellKind
    text : str
        LaTeX text of labels and settings.
    value, spread : float or None
        Number in the column's unit and its sample standard deviation over seeds (None with one seed).
    seeds : int
        Number of runs behind a measured value.
    delta : float or None
        Difference to the row's baseline, same unit.
    delta_p : float or None
        Its p value; None with too few seeds.
    interval : tuple of two floats, or None
        Ends of the value's 95 % interval, printed beside it.
    star : bool
        Whether a star marks the difference.
    decimals : int or None
        Digits after the point; None: as many as the number needs, thousands separated.
    bold : bool
    notes : tuple of str
        Footnotes, LaTeX text.
    span : int
        Columns that the cell takes.
    """

    kind: CellKind
    text: str = ""
    value: float | None = None
    spread: float | None = None
    seeds: int = 0
    delta: float | None = None
    delta_p: float | None = None
    interval: tuple[float, float] | None = None
    star: bool = False
    decimals: int | None = 1
    bold: bool = False
    notes: tuple[str, ...] = ()
    span: int = 1

    @property
    def ends(self) -> tuple[str, ...] | None:
        """Value and ends of the interval as text, '' for unknown ends; None for a cell without interval."""
        if self.interval is None:
            return None
        numbers = (self.value, *self.interval)
        return tuple("" if number != number else f"{number:.{self.decimals}f}" for number in numbers)


class Side(NamedTuple):
    """One printed column (or line of a sweep): a declared column, published or measured.

    ``side`` is '' for labels and settings, else published, measured, external or (of settings tables) configured.
    """

    column: str
    side: str


def label_cell(row: Row) -> Cell:
    """Return the first cell of a row as the paper prints it: label, dagger, citation."""
    text = row.label + (r"\dag" if row.dagger else "") + (rf"\cite{{{row.cite}}}" if row.cite else "")
    return Cell(CellKind.LABEL, text=text, notes=() if row.note is None else (row.note,))


def declared_cell(key: str, column: Column, row: Row) -> Cell:
    """Return the cell of one row and column as declared, the row's note at its label."""
    if column.kind == "label":
        return label_cell(row)
    if key in row.published:
        published, decimals = row.published[key], None if column.kind == "setting" else column.decimals
        kind = CellKind(published.kind)
        return Cell(kind, value=published.value, delta=published.delta, decimals=decimals, bold=published.bold)
    if column.kind != "setting":
        return Cell(CellKind.EMPTY)
    setting = row.settings.get(key)
    if isinstance(setting, bool) or setting is None:
        return Cell(CellKind.SETTING, text=r"$\surd$" if setting else "")
    return Cell(CellKind.SETTING, text=f"{setting:g}" if isinstance(setting, int | float) else setting)


def measured_cells(table: ResolvedTable, side: Side, values: pd.DataFrame) -> dict[str, Cell]:
    """Return the cells of one measured column by row key.

    A value is the mean over seeds, its delta the mean difference to the row's own baseline over common seeds, and bold
    the best mean of a group once two of its rows are measured, all over the same seeds. What cannot be printed, or
    rests on some of the seeds alone, has a footnote that says why.

    Parameters
    ----------
    table : ResolvedTable
    side : Side
    values : DataFrame
        Lines of the table, from `analysis.tables.values.collect_values`.
    """
    if side.side == "configured":
        return {key: _configured_cell(table.settings[key][side.column]) for key in table.rows}
    column = table.declaration.columns[side.column]
    lines = values[values["column"] == side.column]
    series = {key: series_of(of_row) for key, of_row in lines.groupby("row", sort=False)}
    cells = {}
    for key, row in table.rows.items():
        own, baseline = series.get(key), series.get(row.baseline)
        if own is None:
            cells[key] = Cell(CellKind.EMPTY)
            continue
        compared = column.delta and baseline is not None and own.mean is not None
        difference = own.minus(baseline) if compared else None
        tested = difference is not None and isfinite(difference.error)
        notes = own.notes + (_comparison_notes(own, baseline) if compared else ())
        if side.side == "measured":
            notes += tuple(_timing_notes(row, column, values))
        kind = CellKind.EXTERNAL if side.side == "external" else CellKind.MEASURED
        cells[key] = Cell(
            CellKind.MISSING if own.mean is None else kind,
            value=own.mean,
            spread=own.spread,
            seeds=len(own.by_seed),
            delta=None if difference is None else float(difference.value),
            delta_p=float(difference_p(difference)) if tested else None,
            interval=over_seeds([*own.by_seed.values()]).interval()[1:] if column.interval and own.by_seed else None,
            decimals=column.decimals,
            notes=notes,
        )
    best = min if column.metric == "calibration_error" else max
    return _bold_best(table, cells, series, best) if column.bold else cells


def star_differences(sides: Mapping[Side, Mapping[str, Cell]]) -> dict[Side, dict[str, Cell]]:
    """Adjust the p values of all differences of a table for their number (Holm), and star those of at most 5 %."""
    found = {side: dict(cells) for side, cells in sides.items()}
    places = [(side, key) for side, cells in sides.items() for key in cells if cells[key].delta_p is not None]
    for (side, key), p in zip(places, holm([sides[side][key].delta_p for side, key in places]), strict=True):
        found[side][key] = replace(sides[side][key], delta_p=float(p), star=bool(p <= 1 - LEVEL))
    return found


def _configured_cell(values: Sequence[tuple[float, Sequence[str]]]) -> Cell:
    """Print the value of most models; name the others with theirs."""
    if not values:
        return Cell(CellKind.MISSING, notes=("The track has no run on this data set.",))
    (value, _), *others = values
    notes = tuple(f"{quote(', '.join(models))}: {write_number(other, None)}." for other, models in others)
    return Cell(CellKind.SETTING, value=value, decimals=None, notes=notes)


def _comparison_notes(series: Series, baseline: Series) -> tuple[str, ...]:
    """Say why a difference to the baseline is missing, or which seeds it is the mean over."""
    own, others = sorted(series.by_seed), sorted(baseline.by_seed)
    if own == others:
        return ()
    if not others:
        return (NO_BASELINE,)
    common = [seed for seed in own if seed in others]
    if not common:
        return (f"No difference: the row has {_seeds(own)}, its baseline {_seeds(others)}.",)
    return (f"Difference over {_seeds(common)} alone, which row and baseline have in common.",)


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _timing_notes(row: ResolvedRow, column: Column, values: pd.DataFrame) -> Iterable[str]:
    """Say where a row was timed on another device than its baseline."""
    own, others = (set(conditions(values[values["row"] == key], "device")) for key in (row.key, row.baseline))
    if column.metric == "time_s" and own and others and own != others:
        devices = [quote(" and ".join(sorted(names))) for names in (own, others)]
        yield f"Timed on {devices[0]}, but the baseline on {devices[1]}: the two cannot be compared."


def _bold_best(
    table: ResolvedTable, cells: Mapping[str, Cell], series: Mapping[str, Series], best_of: Callable[..., float]
) -> dict[str, Cell]:
    """Set the best of each group in bold; where the rows have different seeds, a footnote says so instead."""
    groups: dict[str, list[str]] = {}
    for key, cell in cells.items():
        if cell.value is not None:
            groups.setdefault(table.rows[key].declaration.group, []).append(key)
    found = dict(cells)
    for keys in groups.values():
        best = best_of(cells[key].value for key in keys)
        is_fair = len({frozenset(series[key].by_seed) for key in keys}) == 1
        for key in keys if len(keys) > 1 else ():
            if cells[key].value == best:
                notes = cells[key].notes + (() if is_fair else (UNFAIR_BEST,))
                found[key] = replace(cells[key], bold=is_fair, notes=notes)
    return found


def write_number(value: float, decimals: int | None) -> str:
    """Write a number with its decimals; None: as many as it needs, thousands separated. Zero has no minus.

    >>> write_number(-0.04, 1), write_number(40000, None), write_number(6e-05, None)
    ('0.0', '40,000', '0.00006')
    """
    if decimals is None:
        return f"{Decimal(str(value)).normalize():,f}"
    written = f"{value:.{decimals}f}"
    return written.removeprefix("-") if float(written) == 0 else written
