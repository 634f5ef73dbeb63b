"""What stands above and below a measured table: caption and remarks."""

from collections.abc import Sequence

from analysis.cells import CellKind
from analysis.latex_text import quote
from analysis.measure import Measurements
from analysis.printed import Record
from analysis.published import caption_of, dagger_remark
from pne.resolve import ResolvedTable, ResolvedTrack

QUOTED = "Italics: quoted from the literature."
ONE_SEED = "Measured: one seed (n = 1); how much another seed would differ is not known."


def caption(table: ResolvedTable, track: ResolvedTrack) -> str:
    """Return the table's caption with what was really measured; its length too, unless it is the paper's."""
    text = caption_of(table.declaration).rstrip()
    text += "" if text.endswith((".", "?", "!")) else "."
    data = _data(table, track)
    verb = "Configured for" if table.declaration.layout == "settings" else "Measured on"
    titles = ", ".join(title for title, _ in data)
    if track.declaration.comparable:
        return f"{text} {verb} {titles}."
    iterations = sorted({track.runs[run].iterations for row in table.rows.values() for run in row.runs.values()})
    length = f" for {' or '.join(f'{number:,}' for number in iterations)} iterations" if iterations else ""
    if table.declaration.paper is None:
        return f"{text} {verb} {titles}{length}."
    where = ", ".join(title if title.startswith(paper) else f"{title} in place of {paper}" for title, paper in data)
    return f"{text} {verb} {where}{length}: published values are not comparable."


def remarks(
    table: ResolvedTable, track: ResolvedTrack, measurements: Measurements, records: Sequence[Record]
) -> list[str]:
    """Return the sentences below the table that belong to no single cell."""
    found = dagger_remark(table.declaration)
    cells = [cell for record in records for cell in record.cells.values()]
    if any(cell.kind is CellKind.QUOTED for cell in cells):
        found.append(QUOTED)
    measured = [cell for cell in cells if cell.kind is CellKind.MEASURED]
    if not measured:
        return [*found, *_notes(table)]
    seeds = max(cell.seeds for cell in measured)
    if seeds > 1:
        found.append(f"Measured: mean $\\pm$ sample standard deviation over n = {seeds} seeds.")
    else:
        found.append(ONE_SEED)
    usual = measurements.conditions(table, "batch").most_common(1)
    if usual:
        found.append(f"Trained with {batch_text(usual[0][0])}.")
    if "bf16" in measurements.conditions(table, "precision"):
        found.append("Trained in mixed precision (bfloat16).")
    if any(column.metric == "time_s" for column in table.declaration.columns.values()):
        devices = sorted(measurements.conditions(table, "device"))
        shared = any(device.startswith("cpu") for device in devices)
        loaded = ", which trains several runs at once: times depend on what ran beside" if shared else ""
        found.append(f"Training time measured on {quote('; '.join(devices))}{loaded}.")
    return [*found, *_notes(table)]


def batch_text(condition: tuple[int, int]) -> str:
    """Write the number of processes and of images per forward pass."""
    world, micro = condition
    return f"{world} process{'es' if world > 1 else ''} of {micro} image{'s' if micro > 1 else ''} per forward pass"


def _data(table: ResolvedTable, track: ResolvedTrack) -> list[tuple[str, str]]:
    """Return what the table's data really is and the name of the paper's data that it stands for."""
    if table.declaration.layout == "settings":
        datasets = [key for key, column in table.declaration.columns.items() if column.kind == "setting"]
        found = [(track.declaration.datasets[name].title, name) for name in datasets]
    else:
        runs = [track.runs[run] for row in table.rows.values() for run in row.runs.values()]
        found = [(run.dataset_title, run.dataset) for run in runs]
    return [(quote(title), _paper_name(name)) for title, name in dict.fromkeys(found)]


def _paper_name(dataset: str) -> str:
    names = {"cityscapes": "Cityscapes", "coco_stuff": "COCO-Stuff", "ade20k": "ADE20K"}
    return names.get(dataset, quote(dataset))


def _notes(table: ResolvedTable) -> list[str]:
    return [] if table.declaration.note is None else [table.declaration.note]
