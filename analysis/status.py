"""Say what is finished, running, failed and waiting; safe while a workflow runs, as nothing is written or locked."""

import argparse
import sys
from collections.abc import Sequence

import pandas as pd

from analysis.command import read_results, resolve, track_parser
from pne.errors import reports_user_errors

_TITLES = {
    "running": "running",
    "failed": "failed",
    "stopped": "stopped before their end (they continue when asked for again)",
    "unevaluated": "trained, with an evaluation still to do",
}


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run.

    Parameters
    ----------
    frame : DataFrame
        From `analysis.results.collect_runs`.

    Returns
    -------
    DataFrame
        Columns run, state (finished, unevaluated, running, stopped, failed, missing), trained, iteration, eta_s,
        error, stale, waiting (evaluations that are not there). A run is finished when every evaluation that it is asked
        for is there, and failed also when one of them failed.
    """
    records = []
    for run, group in frame.groupby("run", sort=False):
        states = set(group["state"])
        trained = group["time_s"].notna().any()
        if states == {"finished"}:
            state = "finished"
        elif "failed" in states:
            state = "failed"
        elif trained:
            state = "unevaluated"
        else:
            state = group["state"].iloc[0]
        first = group[group["state"] == state].iloc[0] if state in states else group.iloc[0]
        waiting = group.loc[group["state"] != "finished", ["evaluation", "state"]].itertuples(index=False)
        records.append(
            {
                "run": run,
                "state": state,
                "trained": bool(trained),
                "iteration": first["iteration"],
                "eta_s": first["eta_s"],
                "error": first["error"],
                "stale": bool((group["stale"] == True).any()),  # noqa: E712 - the column holds None too
                "waiting": ", ".join(f"{name} (running)" if now == "running" else name for name, now in waiting),
            }
        )
    columns = ["run", "state", "trained", "iteration", "eta_s", "error", "stale", "waiting"]
    return pd.DataFrame(records, columns=columns)


def describe(summary: pd.DataFrame, iterations: dict[str, int]) -> str:
    """Write counts first, then a line per run that is running, stopped, failed or not fully evaluated."""
    counts = summary["state"].value_counts()
    total = len(summary)
    shares = [
        f"{counts[state]} {word}"
        for state, word in (
            ("finished", "finished"),
            ("unevaluated", "trained, not fully evaluated"),
            ("running", "running"),
            ("stopped", "stopped"),
            ("failed", "failed"),
            ("missing", "not begun"),
        )
        if counts.get(state, 0)
    ]
    stale = int(summary["stale"].sum())
    lines = [f"{total} runs: {', '.join(shares) or 'none'}" + (f"; {stale} stale" if stale else "")]
    for state, title in _TITLES.items():
        members = summary[summary["state"] == state]
        if members.empty:
            continue
        lines += ["", f"{title}:"]
        lines += [f"  {row['run']}  {_detail(row, iterations)}".rstrip() for row in members.to_dict("records")]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Write a time span for people: 42 s, 3 min 20 s, 5 h 10 min, 3 d 4 h.

    >>> [duration(s) for s in (42, 200, 18600, 273600)]
    ['42 s', '3 min 20 s', '5 h 10 min', '3 d 4 h']
    """
    seconds = round(seconds)
    for unit, size, smaller, small_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // small_size} {smaller}"
    return f"{seconds} s"


def _detail(row: dict, iterations: dict[str, int]) -> str:
    total = iterations[row["run"]]
    at = "" if pd.isna(row["iteration"]) else f"iteration {int(row['iteration'])} of {total}"
    if row["trained"] and row["state"] == "failed":
        return f"trained, but not {row['waiting']}: {row['error']}"
    if row["state"] == "running":
        return at + ("" if pd.isna(row["eta_s"]) else f", {duration(row['eta_s'])} left")
    if row["state"] == "failed":
        return " ".join(part for part in (f"{at}:" if at else "", str(row["error"])) if part)
    return row["waiting"] if row["state"] == "unevaluated" else at


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m analysis.status``."""
    found = track_parser("python -m analysis.status", "Say what is finished, running, failed and waiting.")
    found.add_argument("--table", action="append", help="only runs of this table; several times for more")
    return found


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Print the status."""
    args = parser().parse_args(argv)
    track = resolve(args, tables=args.table)
    iterations = {run: spec.iterations for run, spec in track.runs.items()}
    print(f"track {track.name}: {track.declaration.title}")
    print(describe(summarise(read_results(track)), iterations))


if __name__ == "__main__":
    sys.exit(main())
