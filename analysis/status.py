"""Say what is finished, running, failed and waiting; safe while a workflow runs, as nothing is written or locked."""

import sys
from collections.abc import Sequence

import pandas as pd

from analysis.results import read_results, resolve, track_parser
from pne.console import duration
from pne.errors import reports_user_errors

# How each state is counted, in this order, and what stands above the list of its runs.
_STATES = {
    "finished": ("finished", None),
    "unevaluated": ("trained, not fully evaluated", "trained, with an evaluation still to do"),
    "running": ("running", "running"),
    "stopped": ("stopped", "stopped before their end (they continue when asked for again)"),
    "failed": ("failed", "failed"),
    "missing": ("not begun", None),
}
_LISTED = ("running", "failed", "stopped", "unevaluated")


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
        error, stale, waiting (evaluations that are not there, or of other weights). A run is finished when every
        evaluation that it is asked for is there, and failed also when one of them failed.
    """
    records = []
    frame = frame.assign(state=frame["state"].mask(frame["outdated"].eq(True), "missing"))
    for run, group in frame.groupby("run", sort=False):
        states = set(group["state"])
        trained = bool(group["time_s"].notna().any())
        if "failed" in states:
            state = "failed"
        elif trained:
            state = "finished" if states == {"finished"} else "unevaluated"
        else:
            state = group["state"].iloc[0]
        first = group[group["state"] == state].iloc[0] if state in states else group.iloc[0]
        waiting = group.loc[group["state"] != "finished", ["evaluation", "state"]].itertuples(index=False)
        records.append(
            {
                **{"run": run, "state": state, "trained": trained},
                **first[["iteration", "eta_s", "error"]],
                "stale": bool((group["stale"] == True).any()),  # noqa: E712 - the column holds None too
                "waiting": ", ".join(f"{name} (running)" if now == "running" else name for name, now in waiting),
            }
        )
    columns = ["run", "state", "trained", "iteration", "eta_s", "error", "stale", "waiting"]
    return pd.DataFrame(records, columns=columns)


def describe(summary: pd.DataFrame, iterations: dict[str, int]) -> str:
    """Write counts first, then a line per run that is running, stopped, failed or not fully evaluated."""
    counts = summary["state"].value_counts()
    shares = [f"{counts[state]} {word}" for state, (word, _) in _STATES.items() if state in counts]
    stale = int(summary["stale"].sum())
    lines = [f"{len(summary)} runs: {', '.join(shares) or 'none'}" + (f"; {stale} stale" if stale else "")]
    for state in _LISTED:
        members = summary[summary["state"] == state].to_dict("records")
        if members:
            lines += ["", f"{_STATES[state][1]}:"]
            lines += [f"  {row['run']}  {_detail(row, iterations[row['run']])}".rstrip() for row in members]
    return "\n".join(lines)


def _detail(row: dict, total: int) -> str:
    at = "" if pd.isna(row["iteration"]) else f"iteration {int(row['iteration'])} of {total}"
    if row["state"] == "failed":
        where = f"trained, but not {row['waiting']}" if row["trained"] else at
        return f"{where}: {row['error']}" if where else str(row["error"])
    if row["state"] == "running" and not pd.isna(row["eta_s"]):
        return f"{at}, {duration(row['eta_s'])} left"
    return row["waiting"] if row["state"] == "unevaluated" else at


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Print the status."""
    description = "Say what is finished, running, failed and waiting."
    parser = track_parser("python -m analysis.status", description, only_tables=True)
    args = parser.parse_args(argv)
    track = resolve(args, tables=args.table)
    print(f"track {track.name}: {track.declaration.title}")
    print(describe(summarise(read_results(track)), {run: spec.iterations for run, spec in track.runs.items()}))


if __name__ == "__main__":
    sys.exit(main())
