"""A table ready to be written: heads, blocks of lines, footnotes, and the same cells by row and column for CSV."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from analysis.cells import Cell, CellKind
from pne.declaration.schema import Row, Table

_Blocks = tuple[tuple[tuple[Cell, ...], ...], ...]


@dataclass(frozen=True)
class Side:
    """One printed column (or line of a sweep): a declared column, published or measured.

    Attributes
    ----------
    column : str
        Key of the declared column.
    side : str
        '' for labels and settings, else published, measured, external or (of settings tables) configured.
    """

    column: str
    side: str


@dataclass(frozen=True)
class Head:
    """A cell of a table's head; LaTeX text."""

    text: str
    span: int = 1


@dataclass(frozen=True)
class Record:
    """All cells of one declared row."""

    key: str
    row: Row
    cells: Mapping[Side, Cell]
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrintedTable:
    """What the renderers write.

    Attributes
    ----------
    name : str
    label : str
        LaTeX label.
    caption : str
        LaTeX text, as everything printed.
    alignment : tuple of str
        l, c or r for each printed column.
    head : tuple of tuple of Head
        Lines of the head, each spanning all columns.
    blocks : tuple of blocks of lines of cells
        Blocks are separated by rules.
    records : tuple of Record
        The same cells by declared row, for CSV.
    sides : tuple of Side
        Printed order of the cells of a record.
    remarks : tuple of str
        Sentences below the table that belong to no single cell.
    """

    name: str
    label: str
    caption: str
    alignment: tuple[str, ...]
    head: tuple[tuple[Head, ...], ...]
    blocks: _Blocks
    records: tuple[Record, ...]
    sides: tuple[Side, ...]
    remarks: tuple[str, ...] = ()

    def footnotes(self) -> dict[str, str]:
        """Return note -> mark (a, b, ...), in reading order."""
        notes: dict[str, str] = {}
        for block in self.blocks:
            for line in block:
                for cell in line:
                    for note in cell.notes:
                        notes.setdefault(note, _mark(len(notes)))
        return notes


_Layout = tuple[tuple[str, ...], tuple[tuple[Head, ...], ...], _Blocks]


def label_cell(row: Row) -> Cell:
    """Return the first cell of a row as the paper prints it: label, dagger, citation."""
    text = row.label + (r"\dag" if row.dagger else "") + (rf"\cite{{{row.cite}}}" if row.cite else "")
    return Cell(CellKind.LABEL, text=text, notes=() if row.note is None else (row.note,))


def cell_marks(cell: Cell, marks: Mapping[str, str]) -> list[str]:
    """Return the footnote marks of a cell in the order of the notes below the table."""
    return sorted((marks[note] for note in cell.notes), key=lambda mark: (len(mark), mark))


def arrange(
    declaration: Table,
    sides: Sequence[Side],
    records: Sequence[Record],
    *,
    label: str,
    caption: str,
    remarks: Sequence[str] = (),
) -> PrintedTable:
    """Lay the cells of a table out as its declaration asks for.

    Parameters
    ----------
    declaration : Table
    sides : sequence of Side
        What to print of each row, in order; the sides of one column stand together.
    records : sequence of Record
        In declared order, each with a cell for every side.
    label, caption, remarks
        See `PrintedTable`.
    """
    lay = _as_sweep if declaration.layout == "sweep" else _as_rows
    alignment, head, blocks = lay(declaration, sides, records)
    return PrintedTable(
        name=declaration.table,
        label=label,
        caption=caption,
        alignment=alignment,
        head=head,
        blocks=blocks,
        records=tuple(records),
        sides=tuple(sides),
        remarks=tuple(remarks),
    )


def _as_rows(declaration: Table, sides: Sequence[Side], records: Sequence[Record]) -> _Layout:
    kinds = [declaration.columns[side.column].kind for side in sides]
    alignment = tuple("l" if kind == "label" else "c" for kind in kinds)
    first: list[Head] = []
    for index, side in enumerate(sides):
        if index and side.column == sides[index - 1].column:
            first[-1] = Head(first[-1].text, first[-1].span + 1)
        else:
            first.append(Head(declaration.columns[side.column].title))
    head = [tuple(first)]
    if len(first) < len(sides):
        head.append(tuple(Head(side.side) for side in sides))
    blocks: list[list[tuple[Cell, ...]]] = []
    for index, record in enumerate(records):
        if index == 0 or record.row.rule_above:
            blocks.append([])
        blocks[-1].append(tuple(record.cells[side] for side in sides))
    return alignment, tuple(head), tuple(map(tuple, blocks))


def _as_sweep(declaration: Table, sides: Sequence[Side], records: Sequence[Record]) -> _Layout:
    lines_of = [side for side in sides if declaration.columns[side.column].kind in ("metric", "external")]
    two_sided = len({side.column for side in lines_of}) < len(lines_of)
    groups = list(dict.fromkeys(record.row.group for record in records))
    width = max(sum(record.row.group == group for record in records) for group in groups)
    padding = Cell(CellKind.EMPTY)
    blocks = []
    for group in groups:
        members = [record for record in records if record.row.group == group]
        fill = (padding,) * (width - len(members))
        head = Cell(CellKind.LABEL, text=declaration.groups.get(group, group))
        lines = [(head, *(_cell_of_label(declaration, sides, record) for record in members), *fill)]
        for side in lines_of:
            title = declaration.columns[side.column].title + (f" ({side.side})" if two_sided else "")
            cells = (record.cells[side] for record in members)
            lines.append((Cell(CellKind.LABEL, text=title), *cells, *fill))
        blocks.append(tuple(lines))
    return ("l", *("c",) * width), (), tuple(blocks)


def _cell_of_label(declaration: Table, sides: Sequence[Side], record: Record) -> Cell:
    labels = [record.cells[side] for side in sides if declaration.columns[side.column].kind == "label"]
    return labels[0] if labels else label_cell(record.row)


def _mark(index: int) -> str:
    letters = len(ascii_lowercase)
    return (_mark(index // letters - 1) if index >= letters else "") + ascii_lowercase[index % letters]
