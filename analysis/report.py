"""Pages of the report: ``python -m analysis.report --track TRACK --page NAME ...`` writes one HTML file per table."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.claims_page import read_claims, render_claims
from analysis.command import read_for_comparison, resolve, track_parser
from analysis.external import load_external
from analysis.figures.declaration import title_of
from analysis.figures.embedding import TABLE as EMBEDDING
from analysis.figures.embedding import describe, labels_of, read_numbers
from analysis.figures.embedding_table import column_heads, render_rows
from analysis.latex_text import to_plain
from analysis.measure import Measurements
from analysis.measured import print_measured
from analysis.pages import Page, PageCell, PageRow, render, table_page
from analysis.printed import Head
from analysis.run_details import RunDetails, describe_run
from pne.declaration.resolved import ResolvedTable, ResolvedTrack
from pne.errors import UserError, reports_user_errors
from pne.files import write_text

CLAIMS = "claims"


def runs_by_row(table: ResolvedTable, track: ResolvedTrack) -> dict[str, list[RunDetails]]:
    """Describe the runs of every row."""
    return {key: [describe_run(track.runs[run]) for run in row.runs.values()] for key, row in table.rows.items()}


def embedding_page(table: ResolvedTable, track: ResolvedTrack, numbers: pd.DataFrame) -> Page:
    """Make the page of table embedding from its numbers."""
    labels = labels_of(table)
    caption, notes = describe(table, track, numbers)
    keys = {to_plain(label): key for key, label in labels.items()}
    blocks = []
    for title, lines in render_rows(numbers, labels, latex=False):
        block = [[PageCell(title, span=len(column_heads()) + 1)]]
        for label, *cells in lines:
            texts = []
            for cell in cells:
                value, _, interval = cell.replace("**", "").partition(" ")
                row = keys[label] if cell else ""
                texts.append(PageCell(value, interval, "measured", bold="**" in cell, row=row))
            block.append([PageCell(label), *texts])
        blocks.append(block)
    details = runs_by_row(table, track)
    return Page(
        title=title_of(table),
        caption=to_plain(caption),
        head=[[Head(""), *map(Head, column_heads())]],
        blocks=blocks,
        notes=[("", to_plain(note)) for note in notes],
        rows=[PageRow(key, to_plain(label), details[key]) for key, label in labels.items()],
    )


def write_page(name: str, track: ResolvedTrack, results: Path, experiments: Path) -> str:
    """Write one page as HTML from what is finished.

    Raises
    ------
    UserError
        If the track offers no such table, or what the page shows has not been made.
    """
    if name == CLAIMS:
        return render_claims(read_claims(results / track.name / "claims" / "claims.json"), track)
    table = track.tables.get(name)
    if table is None or not table.available:
        offered = [key for key, table in track.tables.items() if table.available]
        raise UserError(f"track {track.name}: no table {name!r}; allowed: {', '.join([*offered, CLAIMS])}")
    if name == EMBEDDING:
        return render(embedding_page(table, track, read_numbers(track)))
    scores = load_external(experiments / "external.yaml")
    track, frame = read_for_comparison(track)
    printed = print_measured(table, track, Measurements(frame), scores)
    return render(table_page(title_of(table), printed, runs_by_row(table, track)))


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Write the pages and print their paths."""
    parser = track_parser("python -m analysis.report", "Write HTML pages: a table with the runs behind every cell.")
    parser.add_argument("--page", action="append", required=True, help="name of a table, or claims; several times")
    args = parser.parse_args(argv)
    track = resolve(args)
    for name in args.page:
        path = args.results / track.name / "report" / f"{name}.html"
        write_text(path, write_page(name, track, args.results, args.experiments))
        print(path)


if __name__ == "__main__":
    sys.exit(main())
