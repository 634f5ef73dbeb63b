"""Draw pixels: images with labels and predictions, the pairs that a loss draws, and planes of t-SNE."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from analysis.figures import style
from analysis.figures.tsne import Map
from pne.errors import UserError
from pne.extract.archives import Pairs, Predictions

COLUMNS = ("Image", "Label", "Baseline", "Ours", "Change")
CHANGES = ("right in both", "gain: only ours right", "loss: only baseline right", "wrong in both", "ignored")
_COLOURS = ("#E8E8E8", style.GAIN, style.LOSS, "#969696", "#FFFFFF")
CHANGE_COLOURS = np.array([tuple(bytes.fromhex(colour[1:])) for colour in _COLOURS], np.uint8)
MOST_CLASSES = 30  # in a legend
SMALLEST = 9.0  # marker, points squared
PAIR_STYLES = {  # marker, face, largest size
    "anchors": ("X", style.LOSS, 34),
    "positives": ("o", style.GAIN, 20),
    "negatives": ("s", style.YELLOW, 20),
}
SIZE = 9.0  # of a pixel on a plane, points squared
HOLLOW = "d"  # of the legend's entry for wrong predictions
MARGIN = 0.04  # around the pixels of a plane, of their extent


def change_map(
    label: NDArray[np.integer], baseline: NDArray[np.integer], ours: NDArray[np.integer], classes: int
) -> NDArray[np.int64]:
    """Say what became of each pixel, as an index into `CHANGES`, shape (H, W)."""
    before, after = baseline == label, ours == label
    change = np.select([before & after, after, before], [0, 1, 2], 3)
    return np.where(label < classes, change, 4)


def show(ax: Axes, image: NDArray[np.uint8]) -> None:
    """Show an image without ticks, pixel by pixel, in a thin frame: ignored borders are white."""
    ax.imshow(image, interpolation="nearest", aspect="equal")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(visible=True, color=style.GREY, linewidth=0.4)


def patch(colour: NDArray[np.uint8], label: str) -> Patch:
    """Return a legend entry of an area."""
    return Patch(facecolor=colour / 255, edgecolor="grey", linewidth=0.3, label=label)


def add_class_legend(figure: Figure, labels: Sequence[NDArray[np.integer]], data: Predictions | Pairs) -> None:
    """Add a legend entry per class that occurs, of the most frequent ones where there are too many."""
    seen = np.concatenate([label.ravel() for label in labels])
    counts = np.bincount(seen[seen < len(data.classes)], minlength=len(data.classes))
    most = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
    handles = [patch(data.palette[i], str(data.classes[i])) for i in sorted(most) if counts[i]]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, columnspacing=1.0, handlelength=1.2)


def draw_comparison(baseline: Predictions, ours: Predictions, reasons: Sequence[str]) -> Figure:
    """Draw one line per image: image, label, baseline, ours, and where ours gains and loses.

    Parameters
    ----------
    baseline, ours : Predictions
        Of the same images.
    reasons : sequence of str
        Why each image was chosen; written beside it.

    Raises
    ------
    UserError
        If the two hold different images.
    """
    if baseline.names.tolist() != ours.names.tolist():
        raise UserError("the predictions of baseline and ours are of different images; delete them and run again")
    cell = (style.PAGE - 5 * style.MILLIMETRE) / len(COLUMNS)
    heights = (cell * ours.size[:, 0] / ours.size[:, 1]).tolist()
    figure = style.new_figure(style.PAGE, sum(heights) + 26 * style.MILLIMETRE, images=True)
    axes = figure.subplots(len(heights), len(COLUMNS), squeeze=False, height_ratios=heights)
    figure.get_layout_engine().set(w_pad=0.01, h_pad=0.03, wspace=0.01, hspace=0.01)
    shown = []
    for row, reason in enumerate(reasons):
        image, label, before = baseline.panel(row)
        after = ours.panel(row)[2]
        change = CHANGE_COLOURS[change_map(label, before, after, len(ours.classes))]
        parts = [image, *(style.paint(part, ours.palette) for part in (label, before, after)), change]
        for ax, part in zip(axes[row], parts, strict=True):
            show(ax, part)
        axes[row, 0].set_ylabel(textwrap.fill(reason, 12), fontsize=7)
        shown += [label, before, after]
    for ax, title in zip(axes[0], COLUMNS, strict=True):
        ax.set_title(title)
    changes = list(map(patch, CHANGE_COLOURS, CHANGES))
    figure.legend(handles=changes, loc="outside upper center", ncols=len(changes), columnspacing=1.2)
    add_class_legend(figure, shown, ours)
    return figure


def name_negatives(pairs: Pairs) -> str:
    """Say what the negatives are: the correct pixels of the predicted class, unless the loss takes others."""
    true, predicted = pairs.true_classes(pairs.negatives), pairs.predicted_classes(pairs.negatives)
    wanted = pairs.about["predicted_class"]
    if ((true == wanted) & (predicted == wanted)).all():
        return f"correct {pairs.classes[wanted]}"
    return "correct pixels of other classes" if (true == predicted).all() else "pixels of other classes"


def draw_pairs(pairs: Pairs) -> Figure:
    """Draw image, label and prediction of the feature map's cells, each with the drawn pixels.

    A marker stands on the pixel whose label the loss reads for the cell.
    """
    height, width = pairs.label.shape
    cell = style.PAGE / 3
    figure = style.new_figure(style.PAGE, cell * height / width + 20 * style.MILLIMETRE, images=True)
    axes = figure.subplots(1, 3)
    room = (cell * 72 / pairs.prediction.shape[1]) ** 2  # of a cell, points squared
    prediction = pairs.spread_prediction()
    parts = [pairs.image, style.paint(pairs.label, pairs.palette), style.paint(prediction, pairs.palette)]
    for ax, part, title in zip(axes, parts, ("(a) image", "(b) label", "(c) prediction"), strict=True):
        show(ax, part)
        ax.set_title(title)
        for name in ("positives", "negatives", "anchors"):
            marker, colour, most = PAIR_STYLES[name]
            look = {"marker": marker, "facecolor": colour, "edgecolor": "black", "linewidth": 0.4}
            xy = pairs.label_pixels(getattr(pairs, name))[:, ::-1]
            # Pixels at the border are drawn whole.
            ax.scatter(*xy.T, s=np.clip(0.8 * room, SMALLEST, most), label=name, clip_on=False, zorder=3, **look)
        ax.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    if len(pairs.anchors):
        true, predicted = (pairs.classes[pairs.about[key]] for key in ("true_class", "predicted_class"))
        meanings = {
            "anchors": f"{true} taken for {predicted}",
            "positives": f"correct {true}",
            "negatives": name_negatives(pairs),
        }
        handles = [
            _point(m, markerfacecolor=c, markeredgecolor="black", label=f"{name}: {meanings[name]}")
            for name, (m, c, _) in PAIR_STYLES.items()
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=3, handletextpad=0.2)
    else:
        figure.suptitle("The loss draws no pair in any evaluated image.", fontsize=style.FONT_SIZE)
    add_class_legend(figure, [pairs.label, prediction], pairs)
    return figure


def _point(marker: str, **look: Any) -> Line2D:
    """Return a legend entry of a marker without a line."""
    return Line2D([], [], linestyle="none", marker=marker, **look)


def _look(value: int, data: Map) -> tuple[str, NDArray[np.floating]]:
    """Return marker and colour of a class."""
    return style.MARKERS[value % len(style.MARKERS)], style.visible(data.palette[value] / 255)


def draw_plane(ax: Axes, data: Map, rows: NDArray[np.integer]) -> None:
    """Draw one marker per pixel: colour and shape say its label, a hollow one that it is predicted wrongly."""
    xy, label, wrong = data.xy[rows], data.label[rows], (data.prediction != data.label)[rows]
    for value in np.unique(label):
        marker, colour = _look(value, data)
        for mistaken, suffix, face, order in ((False, "", [colour], 3), (True, ", wrong", "none", 2)):
            chosen = (label == value) & (wrong == mistaken)
            if chosen.any():
                look = {"marker": marker, "facecolors": face, "edgecolors": [colour], "linewidths": 0.6}
                ax.scatter(*xy[chosen].T, s=SIZE, label=f"{data.classes[value]}{suffix}", zorder=order, **look)
    ax.set(xticks=[], yticks=[])
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(MARGIN)
    ax.spines[["top", "right"]].set_visible(True)


def class_handles(data: Map, rows: NDArray[np.integer]) -> list[Line2D]:
    """Return the entries of a legend: one per class, and what a hollow marker means."""
    looks = {value: _look(value, data) for value in np.unique(data.label[rows])}
    handles = [_point(marker, color=colour, label=data.classes[value]) for value, (marker, colour) in looks.items()]
    if (data.prediction != data.label)[rows].any():
        # Black and of a shape that no class has: it stands for every hollow marker.
        hollow = {"markerfacecolor": "none", "markeredgecolor": style.BLACK, "markeredgewidth": 0.8}
        handles.append(_point(HOLLOW, label="hollow: predicted wrongly", **hollow))
    return handles


def draw_panels(panels: Sequence[tuple[str, NDArray[np.integer]]], data: Map, one_plane: bool = False) -> Figure:
    """Draw two planes side by side above one legend.

    Parameters
    ----------
    panels : sequence of (title, rows)
        Rows of the map that each panel shows.
    data : Map
    one_plane : bool
        Whether the coordinates of all panels are on one plane, so that they share their limits.
    """
    shown = np.concatenate([rows for _, rows in panels])
    low, high = data.xy[shown].min(0), data.xy[shown].max(0)
    extent = high - low if one_plane else np.max([np.ptp(data.xy[rows], axis=0) for _, rows in panels], axis=0)
    ratio = float(np.clip(extent[1] / max(extent[0], 1e-6), 0.6, 1.1))
    figure = style.new_figure(style.PAGE, ratio * style.PAGE / len(panels) + 18 * style.MILLIMETRE)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    margin = MARGIN * np.maximum(high - low, 1e-6)
    for letter, ax, (title, rows) in zip("abcdef", axes, panels, strict=False):
        draw_plane(ax, data, rows)
        if one_plane:
            xlim, ylim = np.stack([low - margin, high + margin], axis=1)
            ax.set(xlim=xlim, ylim=ylim)
            ax.set_aspect("equal", adjustable="box")
        ax.set_title(f"({letter}) {title}")
    handles = class_handles(data, shown)
    figure.legend(handles=handles, loc="outside lower center", ncols=7, handletextpad=0.2, columnspacing=1.2)
    return figure


def draw_sampling(data: Map) -> Figure:
    """Correctly predicted pixels beside pixels drawn by label, on one plane."""
    panels = [
        ("correctly predicted pixels", np.flatnonzero(data.by_correct)),
        ("pixels drawn by label", np.flatnonzero(data.by_label)),
    ]
    return draw_panels(panels, data, one_plane=True)


def draw_losses(data: Map, titles: Sequence[str]) -> Figure:
    """The same pixels as two runs see them."""
    return draw_panels([(title, np.flatnonzero(data.panel == i)) for i, title in enumerate(titles)], data)
