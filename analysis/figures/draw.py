"""From stored results to drawn figures: each kind loads what it needs and hands it to its drawing function."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from analysis.figures import MAP, NOT_COMPARABLE, SELECTION, ResolvedFigure, data_folder, panels, plots
from analysis.figures.style import paper_style, save
from analysis.figures.tsne import Map
from analysis.latex_text import to_plain
from analysis.statistics import read_counts
from pne.errors import UserError
from pne.extract.archives import ConfusionSelection, ImageSelection, Pairs, Predictions, read_selection
from pne.files import write_text
from pne.results import EvaluationResult, read_result
from pne.spec import ResolvedRow, ResolvedTrack

Drawn = tuple[Figure, list[str]]
SAMPLES = "Every point is a pixel of the test images; colour and shape say its label, a hollow one a wrong prediction."


def draw_figure(figure: ResolvedFigure, track: ResolvedTrack) -> list[Path]:
    """Draw one figure; write ``<name>.pdf``, ``.png`` and its caption ``.md``, and return the paths.

    Raises
    ------
    UserError
        If something that the figure shows is not there.
    """
    with paper_style():
        drawn, sentences = KINDS[figure.declaration.kind](figure, track)
        folder = Path(track.runs[figure.runs[0]].runtime.results) / "figures"
        paths = [folder / f"{figure.name}.{suffix}" for suffix in ("pdf", "png")]
        save(drawn, paths)
    caption = folder / f"{figure.name}.md"
    write_text(caption, write_caption(figure, track, sentences))
    return [*paths, caption]


def write_caption(figure: ResolvedFigure, track: ResolvedTrack, sentences: Sequence[str]) -> str:
    """Say in a paragraph each where the figure stands in the paper, what it shows, and of which data that is."""
    where = f" In the paper: {', '.join(figure.declaration.paper)}." if figure.declaration.paper else ""
    runs = [track.runs[run] for run in figure.runs]
    seeds = sorted({run.seed for run in runs})
    named = f"Seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}."
    titles = dict.fromkeys(track.declaration.datasets[run.dataset].title for run in runs)
    comparable = "" if track.declaration.comparable else f" {NOT_COMPARABLE}"
    data = f"Data: {' and '.join(titles)} (track {track.name}).{comparable}"
    return "\n\n".join((f"{figure.declaration.title}.{where}", " ".join((*sentences, named)), data)) + "\n"


def _labels(rows: Iterable[ResolvedRow]) -> list[str]:
    return [to_plain(row.declaration.label) for row in rows]


def _tsne_sampling(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    data = Map.read(data_folder(figure, track) / MAP)
    sentences = [
        f"t-SNE of the penultimate layer's output ({_labels(figure.rows)[0]}): (a) pixels drawn "
        "among the correctly predicted ones, (b) pixels drawn by label, whatever their prediction; equally many of "
        "each class where there are enough. Both are on one plane: a pixel of both stands at the same place.",
        SAMPLES,
        f"{data.about['pixels']} pixels, method {data.about['method']}.",
    ]
    return panels.draw_sampling(data), sentences


def _tsne_loss(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    data = Map.read(data_folder(figure, track) / MAP)
    sentences = [
        "t-SNE of the penultimate layer's output: the same pixels in two networks, both maps begun at the principal "
        "components of the first.",
        SAMPLES,
        f"{data.about['pixels']} pixels, method {data.about['method']}; distances between clusters mean little "
        "in t-SNE, table embedding has the numbers.",
    ]
    baseline, ours = _labels(figure.rows)
    return panels.draw_losses(data, [baseline, f"{baseline} and {ours}"]), sentences


def _qualitative(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    folder = data_folder(figure, track)
    selection = read_selection(folder / SELECTION, ImageSelection)
    baseline, ours = (Predictions.read(folder / f"{run}.npz") for run in figure.first_seed_runs)
    if ours.index.tolist() != [image.index for image in selection.images]:
        raise UserError(f"{folder}: predictions of other images than {SELECTION} names; delete them and run again")
    names = _labels(figure.rows)
    sentences = [
        f"Baseline: {names[0]}; ours: {names[1]}. Change: a gain is a pixel that only ours predicts as labelled, a "
        "loss one that only the baseline does.",
        selection.rule,
        f"Images: {', '.join(image.name for image in selection.images)}.",
    ]
    return panels.draw_comparison(baseline, ours, [image.reason for image in selection.images]), sentences


def _pairs(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    folder = data_folder(figure, track)
    selection = read_selection(folder / SELECTION, ConfusionSelection)
    pairs = Pairs.read(folder / f"{figure.first_seed_runs[0]}.npz")
    (loss,) = _labels(figure.rows)
    cells = " x ".join(map(str, pairs.prediction.shape))
    if not len(pairs.anchors):
        shown = f"{pairs.about['choice']} Shown is image {pairs.about['name']} ({loss})."
    else:
        true, predicted = (str(pairs.classes[pairs.about[key]]) for key in ("true_class", "predicted_class"))
        shown = (
            f"What the loss of {loss} draws for the confusion of {true} with {predicted} in image "
            f"{pairs.about['name']}: {len(pairs.anchors)} of {len(pairs.candidates)} mistaken cells of the feature map "
            f"as anchors, {len(pairs.positives)} cells of correct {true} as positives, {len(pairs.negatives)} cells as "
            f"negatives ({panels.name_negatives(pairs)}). {selection.rule} {pairs.about['choice']}"
        )
    branch = (
        "Drawn by the trained network's own branch. The prediction is that of the feature map, as the loss sees it "
        f"({cells} cells, before upsampling); a marker stands on the one pixel whose label the loss reads for a cell, "
        "its upper left one."
    )
    return panels.draw_pairs(pairs), [shown, branch]


def _sweeps(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    table = figure.parts[0].table
    paths = {run: track.runs[run].directory / f"{table.declaration.evaluation}.json" for run in figure.runs}
    miou = {run: read_result(path, EvaluationResult).miou for run, path in paths.items() if path.exists()}
    points = plots.sweep_values(figure.rows, miou)
    comparable = track.declaration.comparable
    sentences = plots.describe_sweep(points, comparable)
    if len(miou) < len(figure.runs):
        sentences.append(f"{len(figure.runs) - len(miou)} of {len(figure.runs)} runs are not there yet.")
    return plots.draw_sweeps(points, plots.group_names(table), comparable), sentences


def _training_curves(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    histories = {
        label: [plots.read_history(track.runs[run].directory / "history.jsonl") for run in row.runs.values()]
        for label, row in zip(_labels(figure.rows), figure.rows, strict=True)
    }
    curves = plots.gather_curves(histories)
    sentences = [
        "Means over log intervals; bands span the seeds. The contrastive loss is shown as it enters the sum, times its "
        "weight. A loss that lacks a quantity, or leaves it at 0, has no curve of it."
    ]
    return plots.draw_curves(curves, list(histories)), sentences


def _class_iou(figure: ResolvedFigure, track: ResolvedTrack) -> Drawn:
    parts = []
    for part in figure.parts:
        evaluation = part.table.declaration.evaluation
        baseline, ours = (
            {
                seed: read_counts(track.runs[run].directory / f"{evaluation}.confusion.npz")
                for seed, run in row.runs.items()
            }
            for row in part.rows
        )
        seeds = [seed for seed in baseline if seed in ours]
        if not seeds:
            raise UserError(f"figure {figure.name}: baseline and ours of table {part.table.key} share no seed")
        run = track.runs[part.rows[0].runs[seeds[0]]]
        classes = list(read_result(run.directory / f"{evaluation}.json", EvaluationResult).class_iou)
        generator = np.random.default_rng(0)
        changes = plots.iou_changes([baseline[s] for s in seeds], [ours[s] for s in seeds], classes, generator)
        title = f"{run.dataset_title}\n{' → '.join(_labels(part.rows))}"
        parts.append((title, plots.largest_changes(changes)))
    sentences = [
        "Change of the IoU of each class from the baseline to ours, with 95 % intervals of a paired bootstrap over "
        "test images (and seeds, where there are several); faint bars: the interval holds 0.",
        f"Of a data set with more than {plots.MOST_CLASSES} classes, those of the largest change.",
    ]
    return plots.draw_changes(parts), sentences


KINDS: Mapping[str, Callable[[ResolvedFigure, ResolvedTrack], Drawn]] = {
    "tsne_sampling": _tsne_sampling,
    "tsne_loss": _tsne_loss,
    "qualitative": _qualitative,
    "pairs": _pairs,
    "sweeps": _sweeps,
    "training_curves": _training_curves,
    "class_iou": _class_iou,
}
