"""Write the paper's tables, measured or published, as LaTeX, CSV and Markdown."""

import argparse
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from analysis.latex_text import REFERENCES
from analysis.results import read_for_comparison, resolve, track_parser
from analysis.tables import EMBEDDING
from analysis.tables.embedding import measure_table, print_embedding
from analysis.tables.layout import print_measured, print_published, template, write_table
from analysis.tables.values import collect_values, load_external
from pne.errors import UserError, reports_user_errors
from pne.files import write_text
from pne.spec.catalogue import read_catalogue
from pne.spec.reading import suggest
from pne.spec.schema import Table

# A document that shows all tables that are written beside it.
DOCUMENT = "tables.tex"


def write_document(declarations: Collection[Table], folder: Path) -> Path:
    """Write a LaTeX document that shows the given tables, as far as they are written beside it."""
    rows = [row for table in declarations for row in table.rows.values()]
    texts = [text for row in rows for text in (row.label, *row.settings.values()) if isinstance(text, str)]
    cites = {key for text in texts for key in re.findall(r"\\cite\{([^}]*)\}", text)}
    cites |= {row.cite for row in rows if row.cite}
    names = [table.table for table in declarations]
    text = template(DOCUMENT).render(names=names, cites=sorted(cites), references=REFERENCES)
    write_text(folder / DOCUMENT, text)
    return folder / DOCUMENT


def measured_tables(args: argparse.Namespace) -> list[Path]:
    """Write tables of a track with published and measured values side by side.

    Table embedding is measured from extracted features, so it is written only where it is named.
    """
    track = resolve(args, studies=bool(args.table))
    offered = {key: table for key, table in track.tables.items() if table.available}
    for name in args.table or ():
        if name in track.tables and name not in offered:
            raise UserError(f"track {track.name}: table {name} is not offered: {track.tables[name].reason}")
    names = _chosen(args.table, offered, f"track {track.name}")
    folder = args.results / track.name / "tables"
    paths = []
    if EMBEDDING in (args.table or ()):
        table = print_embedding(offered[EMBEDDING], track, measure_table(offered[EMBEDDING], track))
        paths += write_table(table, folder, quoted_italic=True)
    track, frame = read_for_comparison(track)
    values = collect_values(track, frame, load_external(args.experiments / "external.yaml", track))
    for name in names:
        if name != EMBEDDING:
            paths += write_table(print_measured(offered[name], track, values), folder, quoted_italic=True)
    declared = [table.declaration for table in offered.values()]
    shown = [table for table in declared if not table.study or (folder / f"{table.table}.tex").exists()]
    return [*paths, write_document(shown, folder)]


def published_tables(args: argparse.Namespace) -> list[Path]:
    """Write the paper's tables from its printed numbers alone."""
    declared = {key: table for key, table in read_catalogue(args.experiments).tables.items() if table.paper}
    folder = args.results / "published" / "tables"
    paths = []
    for name in _chosen(args.table, declared, "the paper"):
        paths += write_table(print_published(declared[name]), folder, quoted_italic=False)
    return [*paths, write_document(declared.values(), folder)]


def _chosen(names: Sequence[str] | None, known: Collection[str], owner: str) -> Collection[str]:
    for name in names or ():
        if name not in known:
            raise UserError(f"{owner}: no table {name!r}; {suggest(name, known)}")
    return names or known


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Write the tables and print the paths of the files."""
    description = "Write tables as LaTeX, CSV and Markdown, whatever is finished; table embedding only where named."
    parser = track_parser("python -m analysis.tables", description, only_tables=True)
    parser.add_argument("--published", action="store_true", help="the paper's printed numbers alone")
    args = parser.parse_args(argv)
    for path in (published_tables if args.published else measured_tables)(args):
        print(path)


if __name__ == "__main__":
    sys.exit(main())
