"""Say what a track would train, per table, before anything is launched; nothing is written or locked."""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.command import read_results, resolve, track_parser
from analysis.cost import Cost, estimate, highest_memory, read_rehearsals, total_hours
from analysis.status import summarise
from pne.errors import reports_user_errors
from pne.rehearsal.record import GPU_SIZES_GIB, memory_class
from pne.resolve import ResolvedTrack

_MEMORY = "GPU GiB"
_HEADS = ("table", "runs", "shared", "finished", "stale", "to do", "hours to do", _MEMORY)


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
        a ``+`` says that some runs have no estimate), GPU GiB (smallest usual size of GPU that holds each of its
        runs, as far as that was measured on one; a ``+`` says that some were not).
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
                _MEMORY: _memory([costs[run] for run in runs if run in costs], len(runs)),
            }
        )
    return pd.DataFrame(records, columns=list(_HEADS))


def describe(table: pd.DataFrame, track: ResolvedTrack, costs: Mapping[str, Cost]) -> str:
    """Write the plan with where its hours come from and what the track does not offer."""
    lines = [f"track {track.name}: {track.declaration.title}; seeds {', '.join(map(str, track.declaration.seeds))}", ""]
    memory_known = highest_memory(costs.values()) is not None
    shown = table if memory_known else table.drop(columns=_MEMORY)
    rows = [list(shown.columns), *[[str(value) for value in row] for row in shown.itertuples(index=False)]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(shown.columns))]
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
        lines.append(f"Device hours of training, without evaluation, from the seconds per iteration of: {named}.")
    if len(costs) < len(track.runs):
        hint = "rehearse them, or finish a first one" if track.declaration.comparable else "finish a first one"
        lines.append(f"No seconds per iteration are known for {len(track.runs) - len(costs)} runs ({hint}).")
    if memory_known:
        lines.append("GPU GiB: smallest usual GPU that holds the largest run, at the GPUs and micro-batch measured.")
    elif track.declaration.comparable:
        lines.append("What memory a GPU needs is not known until runs were rehearsed on one.")
    lines += [f"Not offered: {name} ({table.reason})." for name, table in track.tables.items() if not table.available]
    return "\n".join(lines).rstrip()


def _hours(hours: float, unknown: int, todo: int) -> str:
    if todo == 0:
        return "0"
    if unknown == todo:
        return "?"
    written = f"{hours:.2f}" if hours < 10 else f"{hours:.0f}"
    return f"{written}{'+' if unknown else ''}"


def _memory(costs: Sequence[Cost], runs: int) -> str:
    highest = highest_memory(costs)
    if highest is None:
        return "?" if runs else "-"
    size = memory_class(highest)
    partly = any(cost.gpu_memory_mib is None for cost in costs) or len(costs) < runs
    return f"{size or f'> {max(GPU_SIZES_GIB)}'}{'+' if partly else ''}"


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
