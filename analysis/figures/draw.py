"""From stored results to drawn figures: each kind loads what it needs and hands it to its drawing function."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from analysis.figures import MAP, NOT_COMPARABLE, SELECTION, ResolvedFigure, data_folder, panels, plots
from analysis.figures.style import paper_style, save
from analysis.figures.tsne import Map
from analysis.latex_text import to_plain
from analysis.tables.layout import template
from analysis.uncertainty import FEWEST_SEEDS, read_counts
from pne.errors import UserError
from pne.extract.archives import ConfusionSelection, ImageSelection, Pairs, Predictions, read_selection
from pne.files import write_text
from pne.results import EvaluationResult, read_result_of
from pne.spec import ResolvedRow, ResolvedTrack

Drawn = tuple[Figure, dict[str, Any]]
"""A figure, and what ``templates/caption.md`` says of its kind alone."""


def draw_figure(figure: ResolvedFigure, track: ResolvedTrack) -> list[Path]:
    """Draw one figure; write ``<name>.pdf``, ``.png`` and its caption ``.md``, and return the paths.

    Raises
    ------
    UserError
        If something that the figure shows is not there.
    """
    runs = [track.runs[run] for run in figure.runs]
    folder = Path(runs[0].runtime.results) / "figures"
    *pictures, caption = paths = [folder / f"{figure.name}.{suffix}" for suffix in ("pdf", "png", "md")]
    with paper_style():
        drawn, facts = KINDS[figure.declaration.kind](figure, track)
        save(drawn, pictures)
    facts |= {
        "figure": figure,
        "track": track,
        "labels": _labels(figure.rows),
        "seeds": sorted({run.seed for run in runs}),
        "titles": dict.fromkeys(track.declaration.datasets[run.dataset].title for run in runs),
        "not_comparable": NOT_COMPARABLE,
    }
    write_text(caption, template("caption.md").render(facts))
    return paths


def _labels(rows: Iterable[ResolvedRow]) -> list[str]:
    return [to_plain(row.declaration.label) for row in rows]


def _tsne(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    data = Map.read(data_folder(figure, track) / MAP)
    if figure.declaration.kind == "tsne_sampling":
        return panels.draw_sampling(data), data.about
    baseline, ours = _labels(figure.rows)
    return panels.draw_losses(data, [baseline, f"{baseline} and {ours}"]), data.about


def _qualitative(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    folder = data_folder(figure, track)
    selection = read_selection(folder / SELECTION, ImageSelection)
    baseline, ours = (Predictions.read(folder / f"{run}.npz") for run in figure.first_seed_runs)
    if ours.index.tolist() != [image.index for image in selection.images]:
        raise UserError(f"{folder}: predictions of other images than {SELECTION} names; delete them and run again")
    drawn = panels.draw_comparison(baseline, ours, [image.reason for image in selection.images])
    return drawn, {"selection": selection}


def _pairs(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    folder = data_folder(figure, track)
    selection = read_selection(folder / SELECTION, ConfusionSelection)
    pairs = Pairs.read(folder / f"{figure.first_seed_runs[0]}.npz")
    negatives = panels.name_negatives(pairs) if len(pairs.anchors) else None
    return panels.draw_pairs(pairs), {"pairs": pairs, "negatives": negatives, "rule": selection.rule}


def _sweeps(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    table = figure.parts[0].table
    evaluation, runs = table.declaration.evaluation, [track.runs[run] for run in figure.runs]
    finished = [run for run in runs if (run.directory / f"{evaluation}.json").exists()]
    miou = {run.run: read_result_of(run, evaluation, EvaluationResult).miou for run in finished}
    points = plots.sweep_values(figure.rows, miou)
    comparable = track.declaration.comparable
    about = plots.about_sweep(points, comparable) | {"missing": len(runs) - len(miou)}
    return plots.draw_sweeps(points, plots.group_names(table), comparable), about


def _training_curves(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    histories = {
        label: [plots.read_history(track.runs[run].directory / "history.jsonl") for run in row.runs.values()]
        for label, row in zip(_labels(figure.rows), figure.rows, strict=True)
    }
    return plots.draw_curves(plots.gather_curves(histories), list(histories)), {}


def _class_iou(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    parts = []
    for part in figure.parts:
        evaluation = part.table.declaration.evaluation
        baseline, ours = part.rows
        seeds = [seed for seed in baseline.runs if seed in ours.runs]
        if not seeds:
            raise UserError(f"figure {figure.name}: baseline and ours of table {part.table.key} share no seed")
        counts = [
            [read_counts(track.runs[row.runs[seed]].directory / f"{evaluation}.confusion.npz") for seed in seeds]
            for row in part.rows
        ]
        run = track.runs[baseline.runs[seeds[0]]]
        classes = list(read_result_of(run, evaluation, EvaluationResult).class_iou)
        changes = plots.iou_changes(*counts, classes, run.layout)
        title = f"{run.dataset_title}\n{' → '.join(_labels(part.rows))}, n = {len(seeds)}"
        parts.append((title, plots.largest_changes(changes)))
    return plots.draw_changes(parts), {"fewest_seeds": FEWEST_SEEDS, "most_classes": plots.MOST_CLASSES}


KINDS: Mapping[str, Callable[[ResolvedFigure, ResolvedTrack], Drawn]] = {
    "tsne_sampling": _tsne,
    "tsne_loss": _tsne,
    "qualitative": _qualitative,
    "pairs": _pairs,
    "sweeps": _sweeps,
    "training_curves": _training_curves,
    "class_iou": _class_iou,
}
