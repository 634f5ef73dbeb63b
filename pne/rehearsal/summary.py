"""What rehearsals say together: seconds, memory, hours and the GPU that is needed, as text."""

from collections.abc import Iterable, Mapping, Sequence

from pne.rehearsal.record import Rehearsal, memory_class
from pne.spec import Run

HEADS = ("rehearsed run", "stands for", "s/iter", "GiB", "s/image ss", "s/image ms", "hours")


def summarise(records: Sequence[Rehearsal], runs: Mapping[str, Run], failures: Mapping[str, str]) -> str:
    """Write the table of the records, then totals and failures.

    Parameters
    ----------
    records : sequence of Rehearsal
    runs : mapping of str to Run
        The track's runs, for their lengths; runs that a record names and that are not here are not counted.
    failures : mapping of str to str
        Rehearsed run -> why it failed.
    """
    failed = [f"FAILED {run}: {why}" for run, why in failures.items()]
    if not records:
        return "\n".join(failed)
    rows = [HEADS, *(_row(record, runs) for record in records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", *_totals(records, runs), *failed])


def hours(record: Rehearsal, runs: Mapping[str, Run]) -> float:
    """Device hours of training, without evaluation, of all runs that a record stands for."""
    iterations = sum(runs[run].iterations for run in record.runs if run in runs)
    return iterations * record.time_s * record.provenance.world_size / 3600


def _row(record: Rehearsal, runs: Mapping[str, Run]) -> tuple[str, ...]:
    scored = [record.evaluations.get(name) for name in ("single_scale", "multi_scale_flip")]
    return (
        record.run,
        str(sum(run in runs for run in record.runs)),
        f"{record.time_s:.3g}",
        f"{record.highest_memory_mib / 1024:.2f}",
        *(f"{cost.time_s:.3g}" if cost else "-" for cost in scored),
        "-" if record.request.reduced else f"{hours(record, runs):.1f}",
    )


def _totals(records: Sequence[Rehearsal], runs: Mapping[str, Run]) -> Iterable[str]:
    whole = [record for record in records if not record.request.reduced]
    if len(whole) < len(records):
        yield "Crop or batch were reduced: seconds and memory show that the runs work, not what they cost."
    if whole:
        devices = sorted({record.provenance.device for record in whole})
        stood_for = sum(run in runs for record in whole for run in record.runs)
        total = sum(hours(record, runs) for record in whole)
        where = " or ".join(devices)
        yield f"{total:.0f} device hours of training for {stood_for} runs on {where}, without evaluation."
    on_gpu = [record.highest_memory_mib for record in whole if record.memory_kind == "cuda_allocated"]
    if on_gpu:
        size = memory_class(max(on_gpu))
        peak = f"{max(on_gpu) / 1024:.1f} GiB at most"
        yield (
            f"A GPU with {size} GiB of memory suffices ({peak})."
            if size
            else f"No usual GPU suffices ({peak}): use several (--gpus 2) or --micro-batch."
        )
