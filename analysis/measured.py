"""Tables with published and measured values side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.cells import Cell, CellKind, write_number
from analysis.external import ExternalScore, unplaced
from analysis.latex_text import quote
from analysis.measure import Measurements, Series
from analysis.measured_texts import batch_text, caption, remarks
from analysis.printed import PrintedTable, Record, Side, arrange
from analysis.published import declared_cell, is_number
from pne.declaration.schema import Column, Track
from pne.options import LOSSES
from pne.resolve import ResolvedRow, ResolvedTable, ResolvedTrack

NO_BASELINE = "No difference: the baseline is not measured."
UNFAIR_BEST = "Best mean of its group, but not bold: the rows have been measured with different seeds."
OTHER_DATA = "Trained on other files of the data set than most of the table: compare fingerprints in the provenance."
NO_SCORE = "No score of the evaluation server is entered in experiments/external.yaml."


def print_measured(
    table: ResolvedTable, track: ResolvedTrack, measurements: Measurements, scores: Sequence[ExternalScore] = ()
) -> PrintedTable:
    """Print published and measured values side by side, whatever is finished.

    A measured value is the mean over seeds, its delta the mean difference to the row's own baseline over common
    seeds, and bold the best mean of a group once two of its rows are measured, all over the same seeds. What cannot be
    printed, or rests on some of the seeds alone, has a footnote that says why.
    """
    declaration = table.declaration
    sides = _sides(table, track.declaration)
    measured = {
        side: _measured_column(table, side, declaration.columns[side.column], track, measurements, scores)
        for side in sides
        if side.side in ("measured", "external", "configured")
    }
    records = []
    for key, row in declaration.rows.items():
        cells = {
            side: measured[side][key]
            if side in measured
            else declared_cell(side.column, declaration.columns[side.column], row)
            for side in sides
        }
        records.append(Record(key, row, cells, tuple(table.rows[key].runs.values())))
    return arrange(
        declaration,
        sides,
        records,
        label=f"tab:{track.name}-{declaration.table}",
        caption=caption(table, track),
        remarks=remarks(table, track, measurements, records),
    )


def _sides(table: ResolvedTable, track: Track) -> list[Side]:
    declaration, sides = table.declaration, []
    for key, column in declaration.columns.items():
        if not is_number(declaration, key):
            sides.append(Side(key, ""))
            continue
        if any(key in row.published or key in row.settings for row in declaration.rows.values()):
            sides.append(Side(key, "published"))
        if column.kind == "setting":
            sides.append(Side(key, "configured"))
        elif column.kind == "metric":
            sides.append(Side(key, "measured"))
        elif track.comparable:  # no server scores a stand-in data set
            sides.append(Side(key, "external"))
    return sides


def _measured_column(
    table: ResolvedTable,
    side: Side,
    column: Column,
    track: ResolvedTrack,
    measurements: Measurements,
    scores: Sequence[ExternalScore],
) -> Mapping[str, Cell]:
    """Return the cells of one measured column by row key."""
    if side.side == "configured":
        return {key: _configured_cell(table.settings[key][side.column]) for key in table.rows}
    series = {}
    for key, row in table.rows.items():
        if not row.runs or not _applies(column, row, track):
            series[key] = None
        elif side.side == "external":
            series[key] = _external_series(table, key, track, scores)
        else:
            series[key] = measurements.series(row, column, table)
    cells = {}
    for key, row in table.rows.items():
        cells[key] = _cell(series[key], side, column, None if row.baseline is None else series[row.baseline])
        notes = ()
        if series[key] is not None and side.side != "external":
            notes = _condition_notes(table, row, measurements)
            if column.metric == "time_s" and row.baseline is not None:
                notes += _timing_notes(row, table.rows[row.baseline], measurements)
        cells[key] = replace(cells[key], notes=cells[key].notes + notes)
    return _bold_best(table, cells, series) if column.bold else cells


def _applies(column: Column, row: ResolvedRow, track: ResolvedTrack) -> bool:
    """Per-positive weights exist only for losses that weigh positives."""
    if column.metric != "weight_std":
        return True
    return all(_weighs_positives(track.runs[run].contrast) for run in row.runs.values())


def _weighs_positives(contrast: Mapping[str, Any] | None) -> bool:
    option = None if contrast is None else LOSSES[contrast["loss"]].get("positive_weight")
    return option is not None and contrast["options"].get("positive_weight", option.default) is not None


def _configured_cell(values: Sequence[tuple[float, Sequence[str]]]) -> Cell:
    """Print the value of most models; name the others with theirs."""
    if not values:
        return Cell(CellKind.MISSING, notes=("The track has no run on this data set.",))
    (value, _), *others = values
    notes = tuple(f"{quote(', '.join(models))}: {write_number(other, None)}." for other, models in others)
    return Cell(CellKind.SETTING, value=value, decimals=None, notes=notes)


def _external_series(table: ResolvedTable, key: str, track: ResolvedTrack, scores: Sequence[ExternalScore]) -> Series:
    runs = tuple(table.rows[key].runs.values())
    found = [score for score in scores if score.belongs_to(track.name, table.key, key, runs)]
    if not found:
        others = unplaced(scores, track)
        elsewhere = f" Scores are entered for other runs: {quote(', '.join(others))}." if others else ""
        return Series(asked=1, notes=(NO_SCORE + elsewhere,))
    score = found[-1]
    note = f"Evaluation server, {score.date.isoformat()}: {quote(score.url)}"
    return Series({0: score.miou}, asked=1, notes=(note,))


def _cell(series: Series | None, side: Side, column: Column, baseline: Series | None) -> Cell:
    if series is None:
        return Cell(CellKind.EMPTY)
    if series.mean is None:
        return Cell(CellKind.MISSING, notes=series.notes)
    compared = column.delta and baseline is not None
    return Cell(
        CellKind.EXTERNAL if side.side == "external" else CellKind.MEASURED,
        value=series.mean,
        spread=series.spread,
        seeds=len(series.by_seed),
        delta=series.minus(baseline) if compared else None,
        decimals=column.decimals,
        notes=series.notes + (_comparison_notes(series, baseline) if compared else ()),
    )


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


def _condition_notes(table: ResolvedTable, row: ResolvedRow, measurements: Measurements) -> tuple[str, ...]:
    """Say where a row was trained with another split of the batch, or other data, than most of the table."""
    found = ()
    if split := _unusual(table, row, measurements, "batch"):
        usual, others = split
        found += tuple(f"Trained with {batch_text(other)}; most of the table: {batch_text(usual)}." for other in others)
    one_data_set = len(measurements.conditions(table, "dataset")) == 1
    if one_data_set and _unusual(table, row, measurements, "dataset_fingerprint"):
        found += (OTHER_DATA,)
    return found


def _unusual(
    table: ResolvedTable, row: ResolvedRow, measurements: Measurements, key: str
) -> tuple[Any, Sequence[Any]] | None:
    """Return what is usual in a table and what a row has instead, if it has."""
    counts = measurements.conditions(table, key)
    if len(counts) < 2:
        return None
    usual = counts.most_common(1)[0][0]
    others = sorted(measurements.condition(row, key) - {usual})
    return (usual, others) if others else None


def _timing_notes(row: ResolvedRow, baseline: ResolvedRow, measurements: Measurements) -> tuple[str, ...]:
    """Say where the times of a row and of its baseline were not taken on equal devices."""
    own, other = (measurements.condition(which, "device") for which in (row, baseline))
    if own == other or not own or not other:
        return ()
    devices = [quote(" and ".join(sorted(names))) for names in (own, other)]
    return (f"Timed on {devices[0]}, but the baseline on {devices[1]}: the two cannot be compared.",)


def _bold_best(
    table: ResolvedTable, cells: Mapping[str, Cell], series: Mapping[str, Series | None]
) -> Mapping[str, Cell]:
    """Set the best of each group in bold; where the rows have different seeds, a footnote says so instead."""
    groups: dict[str, list[str]] = {}
    for key, cell in cells.items():
        if cell.value is not None:
            groups.setdefault(table.rows[key].declaration.group, []).append(key)
    found = dict(cells)
    for keys in groups.values():
        if len(keys) < 2:
            continue
        best = max(cells[key].value for key in keys)
        is_fair = len({frozenset(series[key].by_seed) for key in keys}) == 1
        for key in keys:
            if cells[key].value == best:
                notes = cells[key].notes + (() if is_fair else (UNFAIR_BEST,))
                found[key] = replace(cells[key], bold=is_fair, notes=notes)
    return found
