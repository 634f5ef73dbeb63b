"""Say what a track would train, per table, before anything is launched; nothing is written or locked."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from math import sqrt
from pathlib import Path
from statistics import fmean, median, variance
from typing import NamedTuple

import pandas as pd

from analysis.results import archived_tracks, read_results, resolve, track_parser
from analysis.status import summarise
from analysis.uncertainty import FEWEST_SEEDS, detectable
from pne.errors import reports_user_errors
from pne.rehearse.record import read_rehearsals
from pne.spec import ResolvedTrack, Run

GPU_SIZES_GIB = (8, 11, 16, 24, 32, 40, 48, 80, 96, 141)


class Cost(NamedTuple):
    """What a run took, or is expected to take.

    Attributes
    ----------
    time_s : float
        Device seconds of one training iteration: its seconds times the devices that share it.
    source : str
        Name of the device it was measured on, or who says so.
    gpu_memory_mib : float or None
        Most memory of one GPU; None where no GPU was measured.
    """

    time_s: float
    source: str
    gpu_memory_mib: float | None = None


def estimate(track: ResolvedTrack, frame: pd.DataFrame, rehearsals: Mapping[str, Cost]) -> dict[str, Cost]:
    """Estimate every run of a track, as far as something is known.

    Parameters
    ----------
    track : ResolvedTrack
    frame : DataFrame
        From `analysis.results.collect_runs`.
    rehearsals : mapping of str to Cost
        By run id, from `rehearsed_costs`.

    Returns
    -------
    dict of str to Cost
        By run id. First come finished runs (of the run itself, else of the same model, data set and loss), then
        rehearsals (alike), then, on the paper's own data sets, the seconds per iteration that the paper prints for the
        model on any data set. Runs of which nothing is known are left out.
    """
    measured = {}
    for row in frame.dropna(subset="time_s").to_dict("records"):
        memory = float(row["peak_memory_mib"]) if row["memory_kind"] == "cuda_allocated" else None
        measured[row["run"]] = Cost(float(row["time_s"]) * int(row["world_size"]), row["device"], memory)
    known = printed_times(track) if track.declaration.comparable else {}
    known |= _spread(rehearsals, "rehearsals", track.runs) | _spread(measured, "finished runs", track.runs)
    return {run: known[run] for run in track.runs if run in known}


def rehearsed_costs(folder: Path, track: ResolvedTrack) -> dict[str, Cost]:
    """Read what rehearsals at the runs' own size took, for every run of the track that they stand for.

    Raises
    ------
    UserError
        If a file does not hold what it should.
    """
    costs = {}
    for run, rehearsal in read_rehearsals(folder, track).items():
        trained, origin = rehearsal.trained, rehearsal.trained.provenance
        memory = rehearsal.peak_memory_mib if trained.memory_kind == "cuda_allocated" else None
        costs[run] = Cost(trained.time_s * origin.world_size, origin.device, memory)
    return costs


def printed_times(track: ResolvedTrack) -> dict[str, Cost]:
    """Return the seconds per iteration that the paper prints of a run's model, with or without a contrast."""
    printed: dict[tuple[str, bool], float] = {}
    for table in track.tables.values():
        columns = [key for key, column in table.declaration.columns.items() if column.metric == "time_s"]
        for row, column in product(table.rows.values(), columns):
            cell = row.declaration.published.get(column)
            if row.runs and cell is not None and cell.value is not None:
                run = track.runs[next(iter(row.runs.values()))]
                printed.setdefault((run.model, run.contrast is not None), cell.value)
    kinds = {key: (run.model, run.contrast is not None) for key, run in track.runs.items()}
    return {key: Cost(printed[kind], "the paper") for key, kind in kinds.items() if kind in printed}


def _spread(known: Mapping[str, Cost], source: str, runs: Mapping[str, Run]) -> dict[str, Cost]:
    """Return the cost of runs that are known, and of others the median of the same model, data set and loss."""
    kinds = {key: (run.dataset, run.model, run.contrast and run.contrast["loss"]) for key, run in runs.items()}
    found = {}
    for key, kind in kinds.items():
        costs = [known[key]] if key in known else [cost for other, cost in known.items() if kinds.get(other) == kind]
        if costs:
            devices = " or ".join(sorted({cost.source for cost in costs}))
            time_s = median(cost.time_s for cost in costs)
            found[key] = Cost(time_s, f"{source} on {devices}", highest_memory(costs))
    return found


def highest_memory(costs: Iterable[Cost]) -> float | None:
    """Return the most memory of a GPU that any of them took, in MiB; None if none is known."""
    return max((cost.gpu_memory_mib for cost in costs if cost.gpu_memory_mib is not None), default=None)


_MEMORY = "GPU GiB"


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
        todo = [run for run in runs if by_run[run]["state"] != "finished"]
        records.append(
            {
                "table": name,
                "runs": len(runs),
                "shared": sum(owners[run] > 1 for run in runs),
                "finished": len(runs) - len(todo),
                "stale": sum(by_run[run]["stale"] for run in runs),
                "to do": len(todo),
                "hours to do": _hours([run for run in todo if not by_run[run]["trained"]], track, costs),
                _MEMORY: _memory([costs[run] for run in runs if run in costs], len(runs)),
            }
        )
    return pd.DataFrame(records)


def describe(table: pd.DataFrame, track: ResolvedTrack, costs: Mapping[str, Cost]) -> str:
    """Write the plan with where its hours come from and what the track does not offer."""
    lines = [f"track {track.name}: {track.declaration.title}; seeds {', '.join(map(str, track.declaration.seeds))}", ""]
    memory_known = highest_memory(costs.values()) is not None
    shown = table.set_index("table").rename_axis(columns="table", index=None)
    lines += [(shown if memory_known else shown.drop(columns=_MEMORY)).to_string(), ""]
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


def describe_power(track: ResolvedTrack, known: Iterable[tuple[ResolvedTrack, pd.DataFrame]]) -> str:
    """Say which true differences of mIoU seeds find, in points where results tell how much differences scatter.

    Parameters
    ----------
    track : ResolvedTrack
    known : iterable of (ResolvedTrack, DataFrame)
        Results that can tell, from `analysis.results.read_results`; the first that do are taken.
    """
    deviations = ((*paired_deviation(*one), one[0]) for one in known)
    deviation, differences, source = next((one for one in deviations if one[1]), (1, 0, track))
    unit = "points of mIoU" if differences else "standard deviations of the paired difference"
    numbers = sorted({3, 5, 8, len(track.declaration.seeds)} - {1, 2})
    found = [f"{n} seeds {detectable(n, deviation):.2f} ({detectable(n, deviation, 3):.2f})" for n in numbers]
    known = (
        f"Paired differences have a standard deviation of {deviation:.2f} points, pooled over {differences} rows"
        f"{'' if source is track else f' of the archive of track {source.name}'}."
        if differences
        else "How many points that is, is not known until a row and its baseline have finished two seeds each."
    )
    return (
        f"Seeds find a true difference in 80 % of cases from (as one of three) {', '.join(found)} {unit}.\n"
        f"Fewer than {FEWEST_SEEDS} decide nothing. {known}"
    )


def paired_deviation(track: ResolvedTrack, frame: pd.DataFrame) -> tuple[float, int]:
    """Pool the deviation over seeds of a row's mIoU minus its baseline's, and count those rows; (1, 0) without one."""
    miou = frame.dropna(subset="miou").set_index(["run", "evaluation"])["miou"].to_dict()
    variances = {}
    for table in track.tables.values():
        for row in table.rows.values() if table.available else ():
            base = table.rows[row.baseline].runs if row.baseline else {}
            pairs = [(run, base[seed]) for seed, run in row.runs.items() if seed in base]
            scores = [[miou.get((run, table.declaration.evaluation)) for run in pair] for pair in pairs]
            differences = [ours - theirs for ours, theirs in scores if None not in (ours, theirs)]
            if len(differences) > 1:
                variances[tuple(pairs)] = variance(differences)  # tables share runs
    return (sqrt(fmean(variances.values())), len(variances)) if variances else (1, 0)


def _hours(runs: Sequence[str], track: ResolvedTrack, costs: Mapping[str, Cost]) -> str:
    known = [run for run in runs if run in costs]
    if not known:
        return "?" if runs else "0"
    hours = sum(track.runs[run].iterations * costs[run].time_s for run in known) / 3600
    return f"{hours:.{2 if hours < 10 else 0}f}{'+' if len(known) < len(runs) else ''}"


def memory_class(peak_mib: float) -> int | None:
    """Return the smallest usual size of a GPU, in GiB, that holds a peak of allocated memory; None if none does.

    A tenth is added for what the allocator cannot use, and half a GiB for the driver's context.

    >>> memory_class(6000), memory_class(9000), memory_class(200000)
    (8, 11, None)
    """
    needed = peak_mib / 1024 * 1.1 + 0.5
    return next((size for size in GPU_SIZES_GIB if size >= needed), None)


def _memory(costs: Sequence[Cost], runs: int) -> str:
    highest = highest_memory(costs)
    if highest is None:
        return "?" if runs else "-"
    size = memory_class(highest)
    partly = any(cost.gpu_memory_mib is None for cost in costs) or len(costs) < runs
    return f"{size or f'> {max(GPU_SIZES_GIB)}'}{'+' if partly else ''}"


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Print the plan."""
    parser = track_parser("python -m analysis.plan", "Say what would be trained, per table.", only_tables=True)
    args = parser.parse_args(argv)
    track = resolve(args, tables=args.table)
    frame = read_results(track)
    costs = estimate(track, frame, rehearsed_costs(args.results / track.name / "rehearsals", track))
    print(describe(plan(track, summarise(frame), costs), track, costs))
    archived = archived_tracks(args.experiments, args.results, first=args.track)
    print(describe_power(track, chain([(track, frame)], ((kept, read_results(kept)) for kept in archived))))


if __name__ == "__main__":
    sys.exit(main())
