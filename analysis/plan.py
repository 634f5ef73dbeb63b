"""Say what a track would train, per table, before anything is launched; nothing is written or locked."""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.command import read_results, resolve, track_parser
from analysis.cost import Cost, estimate, read_rehearsals, total_hours
from analysis.status import summarise
from pne.errors import reports_user_errors
from pne.resolve import ResolvedTrack

_HEADS = ("table", "runs", "shared", "finished", "stale", "to do", "hours to do")


def plan(track: ResolvedTrack, summary: pd.DataFrame, costs: Mapping[str, Cost]) -> pd.DataFrame:
    """Count the runs of each table and of all.

    Parameters
    ----------
    track : ResolvedTrack
    summary : DataFrame
        From `analysis.status.summarise`.
    costs : mapping of str to Cost

    Returns
    -------
    DataFrame
        One row per offered table and a last one, ``all``, that counts each run once. Columns: table, runs, shared (with
        another table), finished, stale (finished, but with other training code), to do, hours to do (device hours;
        a ``+`` says that some runs have no estimate).
    """
    of_table = {
        name: list(dict.fromkeys(run for row in table.rows.values() for run in row.runs.values()))
        for name, table in track.tables.items()
        if table.available
    }
    owners = Counter(run for runs in of_table.values() for run in runs)
    by_run = {row["run"]: row for row in summary.to_dict("records")}
    records = []
    for name, runs in [*of_table.items(), ("all", list(track.runs))]:
        finished = [run for run in runs if by_run[run]["state"] == "finished"]
        todo = [run for run in runs if run not in finished]
        untrained = [run for run in todo if not by_run[run]["trained"]]
        hours, unknown = total_hours(untrained, track, costs)
        records.append(
            {
                "table": name,
                "runs": len(runs),
                "shared": sum(owners[run] > 1 for run in runs),
                "finished": len(finished),
                "stale": sum(by_run[run]["stale"] for run in runs),
                "to do": len(todo),
                "hours to do": _hours(hours, unknown, len(untrained)),
            }
        )
    return pd.DataFrame(records, columns=list(_HEADS))


def describe(table: pd.DataFrame, track: ResolvedTrack, costs: Mapping[str, Cost]) -> str:
    """Write the plan with where its hours come from and what the track does not offer."""
    lines = [f"track {track.name}: {track.declaration.title}; seeds {', '.join(map(str, track.declaration.seeds))}", ""]
    rows = [list(_HEADS), *[[str(value) for value in row] for row in table.itertuples(index=False)]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    for row in rows:
        cells = [
            f"{row[0]:<{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells))
    lines.append("")
    sources = Counter(cost.source for cost in costs.values())
    if sources:
        named = ", ".join(f"{source} ({number} runs)" for source, number in sources.items())
        lines.append(f"Hours of training on one device, without evaluation, from seconds per iteration of: {named}.")
    if len(costs) < len(track.runs):
        hint = "rehearse them, or finish a first one" if track.declaration.comparable else "finish a first one"
        lines.append(f"No seconds per iteration are known for {len(track.runs) - len(costs)} runs ({hint}).")
    lines += [f"Not offered: {name} ({table.reason})." for name, table in track.tables.items() if not table.available]
    return "\n".join(lines).rstrip()


def _hours(hours: float, unknown: int, todo: int) -> str:
    if todo == 0:
        return "0"
    if unknown == todo:
        return "?"
    written = f"{hours:.2f}" if hours < 10 else f"{hours:.0f}"
    return f"{written}{'+' if unknown else ''}"


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m analysis.plan``."""
    found = track_parser("python -m analysis.plan", "Say what would be trained, per table.")
    found.add_argument("--table", action="append", help="only this table; several times for more")
    return found


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Print the plan."""
    args = parser().parse_args(argv)
    track = resolve(args, tables=args.table)
    frame = read_results(track)
    costs = estimate(track, frame, read_rehearsals(args.results / track.name / "rehearsals"))
    print(describe(plan(track, summarise(frame), costs), track, costs))


if __name__ == "__main__":
    sys.exit(main())
