"""The paper's tables from declared numbers alone."""

from dataclasses import replace

from analysis.cells import Cell, CellKind, published_cell, setting_cell
from analysis.printed import PrintedTable, Record, Side, arrange, label_cell
from pne.declaration.schema import Column, Row, Table


def declared_cell(key: str, column: Column, row: Row) -> Cell:
    """Return the cell of one row and column as declared, the row's note at its label."""
    if column.kind == "label":
        return label_cell(row)
    if key in row.published:
        return published_cell(row.published[key], None if column.kind == "setting" else column.decimals)
    if column.kind == "setting":
        return setting_cell(row.settings.get(key))
    return Cell(CellKind.EMPTY)


def print_published(declaration: Table) -> PrintedTable:
    """Print a table as the paper does: same rows, values, deltas, bold face and daggers."""
    sides = [Side(key, "published" if is_number(declaration, key) else "") for key in declaration.columns]
    records = []
    for key, row in declaration.rows.items():
        cells = {side: declared_cell(side.column, declaration.columns[side.column], row) for side in sides}
        # Our notes are about our runs; the paper has none.
        records.append(Record(key, row, {side: replace(cell, notes=()) for side, cell in cells.items()}))
    return arrange(
        declaration,
        sides,
        records,
        label=f"tab:published-{declaration.table}",
        caption=caption_of(declaration),
        remarks=dagger_remark(declaration),
    )


def is_number(declaration: Table, key: str) -> bool:
    """Whether a column holds numbers that can be printed from two sides."""
    kind = declaration.columns[key].kind
    return kind in ("metric", "external") or (kind == "setting" and declaration.layout == "settings")


def caption_of(declaration: Table) -> str:
    """Return the paper's caption, or an own ablation's."""
    if declaration.paper is not None:
        return declaration.paper.caption
    return declaration.caption or declaration.question


def dagger_remark(declaration: Table) -> list[str]:
    """Say what a dagger means, if one is printed."""
    if not any(row.dagger for row in declaration.rows.values()):
        return []
    return [r"\dag{} Published value from the mmsegmentation model zoo."]
