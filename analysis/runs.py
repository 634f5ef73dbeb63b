"""List the runs of a track with the tables and rows that use them; reads declarations alone."""

import argparse
import sys
from collections.abc import Mapping, Sequence

from analysis.command import resolve, track_parser
from pne.errors import reports_user_errors
from pne.resolve import ResolvedTrack


def uses(track: ResolvedTrack) -> dict[str, list[str]]:
    """Return run id -> places (``table.row``) that use it, in the order of tables and rows."""
    found: dict[str, list[str]] = {run: [] for run in track.runs}
    for name, table in track.tables.items():
        for key, row in table.rows.items():
            for run in row.runs.values():
                found[run].append(f"{name}.{key}")
    return found


def list_runs(places: Mapping[str, Sequence[str]]) -> str:
    """Write one line per run: its id, then its places."""
    width = max(map(len, places), default=0)
    return "\n".join(f"{run:<{width}}  {' '.join(where)}" for run, where in places.items())


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m analysis.runs``."""
    found = track_parser("python -m analysis.runs", "List run ids with table and row.")
    found.add_argument("--table", action="append", help="only runs of this table; several times for more")
    return found


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Print the list."""
    args = parser().parse_args(argv)
    print(list_runs(uses(resolve(args, tables=args.table))))


if __name__ == "__main__":
    sys.exit(main())
