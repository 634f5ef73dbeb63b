"""Printed tables as CSV: one line per row of the declaration, numbers unrounded."""

import csv
import io

from analysis.cells import Cell
from analysis.latex_text import to_plain
from analysis.printed import PrintedTable

_PARTS = {
    "published": ("value", "delta", "bold", "kind"),
    "measured": ("value", "std", "n", "delta", "bold", "kind"),
    "external": ("value", "delta", "bold", "kind"),
    "configured": ("value", "kind"),
}


def render_csv(table: PrintedTable) -> str:
    """Write one line per row.

    Columns: ``row`` (its key), labels and settings under their column's key, then for each number
    ``<column>_<side>`` and ``<column>_<side>_{std,n,delta,bold,kind}``, ``runs`` (ids) and ``notes``. Measured values
    and deltas are unrounded, in the column's unit (mIoU in percent, times in seconds).
    """
    heads = ["table", "row"]
    for side in table.sides:
        stem = side.column if not side.side else f"{side.column}_{side.side}"
        heads += [stem if part == "value" else f"{stem}_{part}" for part in _PARTS.get(side.side, ("value",))]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*heads, "runs", "notes"])
    for record in table.records:
        line: list[object] = [table.name, record.key]
        for side in table.sides:
            cell = record.cells[side]
            line += [_part(cell, part) for part in _PARTS.get(side.side, ("value",))]
        notes = dict.fromkeys(note for cell in record.cells.values() for note in cell.notes)
        writer.writerow([*line, " ".join(record.runs), " ".join(map(to_plain, notes))])
    return stream.getvalue()


def _part(cell: Cell, part: str) -> object:
    if part == "value":
        return to_plain(cell.text) if cell.value is None else cell.value
    if part == "n":
        return cell.seeds or None
    if part == "bold":
        return "yes" if cell.bold else ""
    return {"std": cell.spread, "delta": cell.delta, "kind": cell.kind.value}[part]
