"""Printed tables as Markdown."""

from analysis.cells import Cell, CellKind, write_cell
from analysis.latex_text import to_plain
from analysis.printed import Head, PrintedTable, cell_marks


def render_markdown(table: PrintedTable, *, quoted_italic: bool) -> str:
    """Write a table as a pipe table with caption and footnotes; rules between blocks are left out."""
    marks = table.footnotes()
    lines = [_cells(line, marks, quoted_italic) for block in table.blocks for line in block]
    if table.head:
        heads = _flatten(table.head)
    else:
        heads, lines = lines[0], lines[1:]
    rule = [":--" if align == "l" else ":-:" for align in table.alignment]
    text = [f"**{_text(table.caption)}**", "", *(f"| {' | '.join(line)} |" for line in (heads, rule, *lines))]
    below = [_text(remark) for remark in table.remarks]
    below += [f"<sup>{mark}</sup> {_text(note)}" for note, mark in marks.items()]
    if below:
        text += ["", *(f"{line}  " for line in below)]
    return "\n".join(text) + "\n"


def _flatten(heads: tuple[tuple[Head, ...], ...]) -> list[str]:
    """Join the lines of a head, column by column."""
    spread = [[_text(head.text) for head in line for _ in range(head.span)] for line in heads]
    return [" ".join(part for part in parts if part) for parts in zip(*spread, strict=True)]


def _cells(line: tuple[Cell, ...], marks: dict[str, str], quoted_italic: bool) -> list[str]:
    return [_cell(cell, marks, quoted_italic) for cell in line]


def _cell(cell: Cell, marks: dict[str, str], quoted_italic: bool) -> str:
    written = write_cell(cell, _text, minus="−", plus_minus=" ± ", missing="–")
    if written and cell.bold:
        written = f"**{written}**"
    if written and cell.kind is CellKind.QUOTED and quoted_italic:
        written = f"*{written}*"
    if cell.notes:
        written += f"<sup>{','.join(cell_marks(cell, marks))}</sup>"
    return written


def _text(latex: str) -> str:
    text = to_plain(latex)
    for special in "\\`*_<|":
        text = text.replace(special, f"\\{special}")
    return text
