"""Tables as HTML pages of their own: every measured cell leads to the runs behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from analysis.cells import Cell, CellKind, write_cell
from analysis.latex_text import to_plain
from analysis.printed import Head, PrintedTable, Record
from analysis.run_details import RunDetails

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class PageCell:
    """A cell as text; ``row`` is the key of the row whose runs stand behind it, empty without runs.

    ``detail`` is a smaller second line.
    """

    text: str
    detail: str = ""
    kind: str = "label"
    bold: bool = False
    row: str = ""
    marks: str = ""
    span: int = 1


@dataclass(frozen=True)
class PageRow:
    """The runs of one row."""

    key: str
    label: str
    runs: Sequence[RunDetails]


@dataclass(frozen=True)
class Page:
    """What the template shows."""

    title: str
    caption: str
    head: Sequence[Sequence[Head]]
    blocks: Sequence[Sequence[Sequence[PageCell]]]
    notes: Sequence[tuple[str, str]] = ()
    rows: Sequence[PageRow] = ()


def table_page(title: str, table: PrintedTable, runs: Mapping[str, Sequence[RunDetails]]) -> Page:
    """Turn a printed table into a page.

    Parameters
    ----------
    title : str
    table : PrintedTable
    runs : mapping
        Details of the runs by key of the row.
    """
    marks = table.footnotes()
    row_of = {id(cell): record.key for record in table.records for cell in record.cells.values()}

    def convert(cell: Cell) -> PageCell:
        text = write_cell(cell, to_plain, minus="−", plus_minus=" ± ", missing="–")
        key = row_of.get(id(cell), "")
        behind = cell.kind in (CellKind.MEASURED, CellKind.MISSING) and bool(runs.get(key))
        return PageCell(
            text=text,
            kind=cell.kind.value,
            bold=cell.bold,
            row=key if behind else "",
            marks=",".join(marks[note] for note in cell.notes),
        )

    return Page(
        title=title,
        caption=to_plain(table.caption),
        head=[[Head(to_plain(head.text), head.span) for head in line] for line in table.head],
        blocks=[[[convert(cell) for cell in line] for line in block] for block in table.blocks],
        notes=[("", to_plain(remark)) for remark in table.remarks]
        + [(mark, to_plain(note)) for note, mark in marks.items()],
        rows=[PageRow(record.key, _name(record), runs[record.key]) for record in table.records if runs.get(record.key)],
    )


def _name(record: Record) -> str:
    """Label and settings of a row: what tells it apart from the others."""
    cells = [cell for side, cell in record.cells.items() if not side.side and cell.kind is CellKind.SETTING]
    settings = [text for cell in cells if (text := write_cell(cell, to_plain, "−", " ± ", "–"))]
    return " · ".join([to_plain(record.row.label), *settings])


def render(page: Page) -> str:
    """Write a page as HTML that needs no other file; all texts are escaped."""
    return template("page.html").render(page=page)


@cache
def template(name: str) -> Template:
    """Load one of the templates; it escapes all texts and refuses unknown names."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    return environment.get_template(name)
