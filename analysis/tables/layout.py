"""Printed tables: cells laid out between head, caption and footnotes, and written as LaTeX, CSV and Markdown."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from analysis.latex_text import quote, to_latex, to_plain
from analysis.tables.cells import (
    Cell,
    CellKind,
    Side,
    declared_cell,
    label_cell,
    measured_cells,
    star_differences,
    write_number,
)
from analysis.tables.values import conditions
from analysis.uncertainty import FEWEST_SEEDS
from pne.files import write_text
from pne.spec import ResolvedTable, ResolvedTrack
from pne.spec.schema import Row, Table

QUOTED = "Italics: quoted from the literature."
ONE_SEED = "Measured: one seed (n = 1); how much another seed would differ is not known."
STARS = r"*: differs from its baseline at 5\,\% over seeds, after Holm over the differences of the table."
INTERVALS = r"Brackets (sub- and superscripts): 95\,\% interval of the mean over seeds (Student's t)."
TEMPLATES = Path(__file__).parents[1] / "templates"

Line = tuple[Cell, ...]


class Record(NamedTuple):
    """All cells of one declared row, and the runs behind them."""

    key: str
    row: Row
    cells: Mapping[Side, Cell]
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrintedTable:
    """What the templates write; texts are LaTeX text.

    Attributes
    ----------
    name : str
    alignment : tuple of str
        l, c or r for each printed column.
    head : tuple of lines of cells
    blocks : tuple of blocks of lines of cells
        Blocks are separated by rules.
    records : tuple of Record
        The same cells by declared row.
    numbers : DataFrame
        What the CSV file holds.
    label, caption : str
    remarks : sequence of str
        Sentences below the table that belong to no single cell.
    spacious : bool
        Whether its lines need more room, as intervals do.
    """

    name: str
    alignment: tuple[str, ...]
    head: tuple[Line, ...]
    blocks: tuple[tuple[Line, ...], ...]
    records: tuple[Record, ...]
    numbers: pd.DataFrame
    label: str
    caption: str
    remarks: Sequence[str] = ()
    spacious: bool = False

    def footnotes(self) -> dict[str, str]:
        """Return note -> mark (a, b, ...), in reading order."""
        notes = dict.fromkeys(n for block in self.blocks for line in block for cell in line for n in cell.notes)
        return {note: _mark(index) for index, note in enumerate(notes)}

    def marks(self, cell: Cell) -> list[str]:
        """Return the footnote marks of a cell in the order of the notes below the table."""
        marks = self.footnotes()
        return sorted((marks[note] for note in cell.notes), key=lambda mark: (len(mark), mark))

    def head_columns(self) -> list[Line]:
        """Return the cells of the head column by column."""
        spread = [[cell for cell in line for _ in range(cell.span)] for line in self.head]
        return list(zip(*spread, strict=True))


def _mark(index: int) -> str:
    letters = len(ascii_lowercase)
    return (_mark(index // letters - 1) if index >= letters else "") + ascii_lowercase[index % letters]


def print_published(declaration: Table) -> PrintedTable:
    """Print a table as the paper does: same rows, values, deltas, bold face and daggers."""
    columns = declaration.columns
    sides = [Side(key, "published" if is_number(declaration, key) else "") for key in columns]
    records = []
    for key, row in declaration.rows.items():
        cells = {side: declared_cell(side.column, columns[side.column], row) for side in sides}
        # Our notes are about our runs; the paper has none.
        records.append(Record(key, row, {side: replace(cell, notes=()) for side, cell in cells.items()}))
    label, remarks = f"tab:published-{declaration.table}", dagger_remark(declaration)
    return arrange(declaration, sides, records, label=label, caption=caption_of(declaration), remarks=remarks)


def print_measured(table: ResolvedTable, track: ResolvedTrack, values: pd.DataFrame) -> PrintedTable:
    """Print published and measured values side by side, whatever is finished.

    Parameters
    ----------
    table : ResolvedTable
    track : ResolvedTrack
    values : DataFrame
        From `analysis.tables.values.collect_values`.
    """
    declaration, values = table.declaration, values[values["table"] == table.key]
    sides = _sides(table, track)
    ours = [side for side in sides if side.side not in ("", "published")]
    measured = star_differences({side: measured_cells(table, side, values) for side in ours})
    records = []
    for key, row in declaration.rows.items():
        cells = {side: declared_cell(side.column, declaration.columns[side.column], row) for side in sides}
        cells |= {side: of_rows[key] for side, of_rows in measured.items()}
        records.append(Record(key, row, cells, tuple(table.rows[key].runs.values())))
    label, caption = f"tab:{track.name}-{declaration.table}", measured_caption(table, track)
    remarks = _remarks(table, values, records)
    return arrange(declaration, sides, records, label=label, caption=caption, remarks=remarks)


def is_number(declaration: Table, key: str) -> bool:
    """Whether a column holds numbers that can be printed from two sides."""
    kind = declaration.columns[key].kind
    return kind in ("metric", "external") or (kind == "setting" and declaration.layout == "settings")


def _sides(table: ResolvedTable, track: ResolvedTrack) -> list[Side]:
    declaration, sides = table.declaration, []
    measured = {"setting": "configured", "metric": "measured", "external": "external"}
    for key, column in declaration.columns.items():
        if not is_number(declaration, key):
            sides.append(Side(key, ""))
            continue
        if any(key in row.published or key in row.settings for row in declaration.rows.values()):
            sides.append(Side(key, "published"))
        if column.kind != "external" or track.declaration.comparable:  # no server scores a stand-in data set
            sides.append(Side(key, measured[column.kind]))
    return sides


def caption_of(declaration: Table) -> str:
    """Return the paper's caption, or an own ablation's."""
    if declaration.paper is not None:
        return declaration.paper.caption
    return declaration.caption or declaration.question


def measured_caption(table: ResolvedTable, track: ResolvedTrack) -> str:
    """Return the table's caption with what was really measured; its length too, unless it is the paper's."""
    text = caption_of(table.declaration).rstrip()
    text += "" if text.endswith((".", "?", "!")) else "."
    data = _data(table, track)
    verb = "Configured for" if table.declaration.layout == "settings" else "Measured on"
    titles = ", ".join(title for title, _ in data)
    if track.declaration.comparable:
        return f"{text} {verb} {titles}."
    iterations = sorted({track.runs[run].iterations for row in table.rows.values() for run in row.runs.values()})
    length = f" for {' or '.join(f'{number:,}' for number in iterations)} iterations" if iterations else ""
    if table.declaration.paper is None:
        return f"{text} {verb} {titles}{length}."
    where = ", ".join(title if title.startswith(paper) else f"{title} in place of {paper}" for title, paper in data)
    return f"{text} {verb} {where}{length}: published values are not comparable."


def _data(table: ResolvedTable, track: ResolvedTrack) -> list[tuple[str, str]]:
    """Return what the table's data really is and the name of the paper's data that it stands for."""
    if table.declaration.layout == "settings":
        datasets = [key for key, column in table.declaration.columns.items() if column.kind == "setting"]
        found = [(track.declaration.datasets[name].title, name) for name in datasets]
    else:
        runs = [track.runs[run] for row in table.rows.values() for run in row.runs.values()]
        found = [(run.dataset_title, run.dataset) for run in runs]
    names = {"cityscapes": "Cityscapes", "coco_stuff": "COCO-Stuff", "ade20k": "ADE20K"}
    return [(quote(title), names.get(name, quote(name))) for title, name in dict.fromkeys(found)]


def dagger_remark(declaration: Table) -> list[str]:
    """Say what a dagger means, if one is printed."""
    shown = any(row.dagger for row in declaration.rows.values())
    return [r"\dag{} Published value from the mmsegmentation model zoo."] if shown else []


def _remarks(table: ResolvedTable, values: pd.DataFrame, records: Sequence[Record]) -> list[str]:
    """Return the sentences below the table that belong to no single cell."""
    found = dagger_remark(table.declaration)
    cells = [cell for record in records for cell in record.cells.values()]
    if any(cell.kind is CellKind.QUOTED for cell in cells):
        found.append(QUOTED)
    seeds = max((cell.seeds for cell in cells if cell.kind is CellKind.MEASURED), default=0)
    if seeds:
        many = f"Measured: mean $\\pm$ sample standard deviation over n = {seeds} seeds."
        found.append(many if seeds > 1 else ONE_SEED)
        if any(cell.delta_p is not None for cell in cells):
            found.append(STARS)
        if any(cell.interval is not None for cell in cells) and seeds >= FEWEST_SEEDS:
            found.append(INTERVALS)
        for usual, _ in conditions(values, "batch").most_common(1):
            found.append(f"Trained with {usual}.")
        if "bf16" in conditions(values, "precision"):
            found.append("Trained in mixed precision (bfloat16).")
        if any(column.metric == "time_s" for column in table.declaration.columns.values()):
            devices = sorted(conditions(values, "device"))
            shared = any(device.startswith("cpu") for device in devices)
            loaded = ", which trains several runs at once: times depend on what ran beside" if shared else ""
            found.append(f"Training time measured on {quote('; '.join(devices))}{loaded}.")
    return found if table.declaration.note is None else [*found, table.declaration.note]


def arrange(declaration: Table, sides: Sequence[Side], records: Sequence[Record], **about: Any) -> PrintedTable:
    """Lay the cells of a table out as its declaration asks for.

    Parameters
    ----------
    declaration : Table
    sides : sequence of Side
        What to print of each row, in order; the sides of one column stand together.
    records : sequence of Record
        In declared order, each with a cell for every side.
    **about
        Label, caption and remarks of the `PrintedTable`.
    """
    columns, records = declaration.columns, tuple(records)
    if declaration.layout == "sweep":
        alignment, head, blocks = _as_sweep(declaration, sides, records)
    else:
        alignment = tuple("l" if columns[side.column].kind == "label" else "c" for side in sides)
        spans = Counter(side.column for side in sides)
        first = tuple(Cell(CellKind.LABEL, text=columns[key].title, span=span) for key, span in spans.items())
        second = tuple(Cell(CellKind.LABEL, text=side.side) for side in sides)
        head = (first, second) if len(first) < len(second) else (first,)
        starts = [index for index, record in enumerate(records) if index == 0 or record.row.rule_above]
        lines = [tuple(record.cells[side] for side in sides) for record in records]
        ends = [*starts[1:], len(lines)]
        blocks = tuple(tuple(lines[start:end]) for start, end in zip(starts, ends, strict=True))
    numbers = _numbers(declaration.table, sides, records)
    return PrintedTable(declaration.table, alignment, head, blocks, records, numbers, **about)


def _as_sweep(
    declaration: Table, sides: Sequence[Side], records: Sequence[Record]
) -> tuple[tuple[str, ...], tuple[Line, ...], tuple[tuple[Line, ...], ...]]:
    """Return alignment, head and blocks of a table with a line per side and a column per row of each group."""
    columns = declaration.columns
    lines_of = [side for side in sides if columns[side.column].kind in ("metric", "external")]
    label = next((side for side in sides if columns[side.column].kind == "label"), None)
    two_sided = len({side.column for side in lines_of}) < len(lines_of)
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.row.group, []).append(record)
    width = max(map(len, groups.values()))
    blocks = []
    for group, members in groups.items():
        fill = (Cell(CellKind.EMPTY),) * (width - len(members))
        labels = [label_cell(record.row) if label is None else record.cells[label] for record in members]
        lines = [(Cell(CellKind.LABEL, text=declaration.groups.get(group, group)), *labels, *fill)]
        for side in lines_of:
            title = columns[side.column].title + (f" ({side.side})" if two_sided else "")
            cells = (record.cells[side] for record in members)
            lines.append((Cell(CellKind.LABEL, text=title), *cells, *fill))
        blocks.append(tuple(lines))
    return ("l", *("c",) * width), (), tuple(blocks)


_PARTS = {
    "published": ("delta", "bold", "kind"),
    "measured": ("std", "n", "delta", "delta_p", "bold", "kind"),
    "external": ("delta", "bold", "kind"),
    "configured": ("kind",),
}


def _numbers(table: str, sides: Sequence[Side], records: Sequence[Record]) -> pd.DataFrame:
    """Return one line per row for the CSV file.

    Columns: ``row`` (its key), labels and settings under their column's key, then for each number
    ``<column>_<side>`` and ``<column>_<side>_{std,n,delta,delta_p,bold,kind}``, ``runs`` (ids) and ``notes``. Measured
    values and deltas are unrounded, in the column's unit (mIoU in percent, times in seconds); p values are after Holm.
    """
    lines = []
    for record in records:
        line: dict[str, object] = {"table": table, "row": record.key}
        for side in sides:
            cell, stem = record.cells[side], "_".join(filter(None, side))
            line[stem] = to_plain(cell.text) if cell.value is None else cell.value
            parts = {"std": cell.spread, "n": cell.seeds or None, "delta": cell.delta}
            parts |= {"delta_p": cell.delta_p, "bold": "yes" if cell.bold else "", "kind": cell.kind.value}
            line |= {f"{stem}_{part}": parts[part] for part in _PARTS.get(side.side, ())}
        notes = dict.fromkeys(note for cell in record.cells.values() for note in cell.notes)
        lines.append(line | {"runs": " ".join(record.runs), "notes": " ".join(map(to_plain, notes))})
    return pd.DataFrame(lines, dtype=object)


def write_cell(cell: Cell, text: Callable[[str], str], minus: str, plus_minus: str, missing: str) -> str:
    """Write a cell without its bold face, interval and footnote marks.

    Parameters
    ----------
    cell : Cell
    text : callable
        Turns LaTeX text into the format's text.
    minus, plus_minus, missing : str
        Signs of the format: a minus, ±, and the dash of a missing value.
    """
    if cell.kind is CellKind.MISSING:
        return missing
    if cell.kind is CellKind.NOT_REPORTED:
        return "-"
    if cell.value is None:
        return text(cell.text)
    number = write_number(cell.value, cell.decimals).replace("-", minus)
    if cell.spread is not None:
        number += f"{plus_minus}{write_number(cell.spread, cell.decimals)}"
    if cell.delta is not None:
        delta = write_number(cell.delta, cell.decimals)
        number += f"({delta.replace('-', minus) if delta.startswith('-') else f'+{delta}'})"
    return number


def _markdown(latex: str) -> str:
    return to_plain(latex).translate({ord(special): f"\\{special}" for special in "\\`*_<|"})


# Of each format, what `write_cell` asks for.
FORMATS: dict[str, tuple[Callable[[str], str], str, str, str]] = {
    "tex": (to_latex, "$-$", r"\,$\pm$\,", "--"),
    "md": (_markdown, "−", " ± ", "–"),
    "html": (to_plain, "−", " ± ", "–"),
}


@cache
def template(name: str) -> Template:
    """Load one of `TEMPLATES`; it refuses unknown names, and HTML escapes all texts."""
    suffix = name.rpartition(".")[2]
    options: dict[str, Any] = {"autoescape": True}
    if suffix != "html":  # braces and percent signs are LaTeX's own
        options = {"block_start_string": "<%", "block_end_string": "%>", "trim_blocks": True, "lstrip_blocks": True}
        options |= {"variable_start_string": "<<", "variable_end_string": ">>", "keep_trailing_newline": True}
    environment = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, **options)
    text, *signs = FORMATS[suffix]
    environment.filters |= {"text": text, "written": lambda cell: write_cell(cell, text, *signs)}
    return environment.get_template(name)


def write_table(table: PrintedTable, folder: Path, *, quoted_italic: bool) -> list[Path]:
    """Write ``<name>.tex``, ``.csv`` and ``.md`` and return their paths.

    Parameters
    ----------
    table : PrintedTable
    folder : Path
    quoted_italic : bool
        Whether values quoted from the literature are set in italics.
    """
    paths = [folder / f"{table.name}.{suffix}" for suffix in ("tex", "csv", "md")]
    for path in paths:
        write_text(path, render(table, path.suffix[1:], quoted_italic=quoted_italic))
    return paths


def render(table: PrintedTable, suffix: str, *, quoted_italic: bool) -> str:
    """Write a table as LaTeX (it needs booktabs and graphicx), CSV or Markdown."""
    if suffix == "csv":
        return table.numbers.to_csv(index=False, lineterminator="\n")
    return template(f"table.{suffix}").render(table=table, quoted_italic=quoted_italic)
