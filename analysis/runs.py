"""List the runs of a track with the tables and rows that use them; reads declarations alone."""

import sys
from collections.abc import Sequence

from analysis.results import resolve, track_parser
from pne.errors import reports_user_errors
from pne.spec import ResolvedTrack


def uses(track: ResolvedTrack) -> dict[str, list[str]]:
    """Return run id -> places (``table.row``) that use it, in the order of tables and rows."""
    found: dict[str, list[str]] = {run: [] for run in track.runs}
    for name, table in track.tables.items():
        for key, row in table.rows.items():
            for run in row.runs.values():
                found[run].append(f"{name}.{key}")
    return found


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Print one line per run: its id, then its places."""
    parser = track_parser("python -m analysis.runs", "List run ids with table and row.", only_tables=True)
    args = parser.parse_args(argv)
    places = uses(resolve(args, tables=args.table))
    width = max(map(len, places), default=0)
    print("\n".join(f"{run:<{width}}  {' '.join(where)}" for run, where in places.items()))


if __name__ == "__main__":
    sys.exit(main())
