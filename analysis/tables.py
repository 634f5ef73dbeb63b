"""Write the paper's tables, measured or published, as LaTeX, CSV and Markdown."""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from analysis.comma_separated import render_csv
from analysis.command import read_for_comparison, resolve, track_parser
from analysis.external import load_external
from analysis.latex import render_document, render_latex
from analysis.latex_text import REFERENCES
from analysis.markdown import render_markdown
from analysis.measure import Measurements
from analysis.measured import print_measured
from analysis.printed import PrintedTable
from analysis.published import print_published
from pne.declaration.catalogue import read_catalogue
from pne.declaration.reading import suggest
from pne.declaration.schema import Row, Table
from pne.errors import UserError, reports_user_errors
from pne.files import write_text

# A document that shows all tables that are written beside it.
DOCUMENT = "tables.tex"


def write_table(table: PrintedTable, folder: Path, *, quoted_italic: bool) -> list[Path]:
    """Write ``<name>.tex``, ``.csv`` and ``.md`` and return their paths."""
    contents = {
        ".tex": render_latex(table, quoted_italic=quoted_italic),
        ".csv": render_csv(table),
        ".md": render_markdown(table, quoted_italic=quoted_italic),
    }
    paths = [folder / f"{table.name}{suffix}" for suffix in contents]
    for path, text in zip(paths, contents.values(), strict=True):
        write_text(path, text)
    return paths


def document(declarations: Iterable[Table]) -> str:
    """Return a LaTeX document that shows the given tables, as far as they are written beside it."""
    declarations = list(declarations)
    texts = [text for table in declarations for row in table.rows.values() for text in _texts(row)]
    inside = [key for text in texts for key in re.findall(r"\\cite\{([^}]*)\}", text)]
    cites = [row.cite for table in declarations for row in table.rows.values() if row.cite]
    return render_document([table.table for table in declarations], sorted({*inside, *cites}), REFERENCES)


def _texts(row: Row) -> list[str]:
    return [row.label, *(value for value in row.settings.values() if isinstance(value, str))]


def measured_tables(args: argparse.Namespace) -> list[Path]:
    """Write tables of a track with published and measured values side by side."""
    track = resolve(args)
    offered = {key: table for key, table in track.tables.items() if table.available}
    for name in args.table:
        if name in track.tables and name not in offered:
            raise UserError(f"track {track.name}: table {name} is not offered: {track.tables[name].reason}")
    names = _chosen(args.table, offered, f"track {track.name}")
    track, frame = read_for_comparison(track)
    measurements = Measurements(frame)
    scores = load_external(args.experiments / "external.yaml", track)
    folder = args.results / track.name / "tables"
    paths = []
    for name in names:
        paths += write_table(print_measured(offered[name], track, measurements, scores), folder, quoted_italic=True)
    write_text(folder / DOCUMENT, document(table.declaration for table in offered.values()))
    return [*paths, folder / DOCUMENT]


def published_tables(args: argparse.Namespace) -> list[Path]:
    """Write the paper's tables from its printed numbers alone."""
    declared = {key: table for key, table in read_catalogue(args.experiments).tables.items() if table.paper}
    folder = args.results / "published" / "tables"
    paths = []
    for name in _chosen(args.table, declared, "the paper"):
        paths += write_table(print_published(declared[name]), folder, quoted_italic=False)
    write_text(folder / DOCUMENT, document(declared.values()))
    return [*paths, folder / DOCUMENT]


def _chosen(names: Sequence[str], known: Iterable[str], owner: str) -> list[str]:
    known = list(known)
    for name in names:
        if name not in known:
            raise UserError(f"{owner}: no table {name!r}; {suggest(name, known)}")
    return list(names) or known


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m analysis.tables``."""
    found = track_parser("python -m analysis.tables", "Write tables as LaTeX, CSV and Markdown, whatever is finished.")
    found.add_argument(
        "--table", action="append", default=[], help="name of a table; give it several times for more (default: all)"
    )
    found.add_argument("--published", action="store_true", help="the paper's printed numbers alone")
    return found


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Write the tables and print the paths of the files."""
    args = parser().parse_args(argv)
    for path in (published_tables if args.published else measured_tables)(args):
        print(path)


if __name__ == "__main__":
    sys.exit(main())
