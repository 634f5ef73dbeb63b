"""Draw pixels on t-SNE planes, coloured and marked by class."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from analysis.figures.style import GREY, MARKERS, MILLIMETRE, PAGE, new_figure, visible
from analysis.figures.tsne import Map

SIZE = 9.0  # of a marker, points squared


def draw_pixels(
    ax: Axes,
    xy: NDArray[np.floating],
    label: NDArray[np.integer],
    wrong: NDArray[np.bool_],
    classes: Sequence[str],
    palette: NDArray[np.uint8],
) -> None:
    """Draw one marker per pixel: colour and shape say its label, a hollow one that it is predicted wrongly."""
    for value in np.unique(label):
        colour = visible(palette[value] / 255)
        for mistaken in (False, True):
            chosen = (label == value) & (wrong == mistaken)
            if not chosen.any():
                continue
            ax.scatter(
                *xy[chosen].T,
                s=SIZE,
                facecolors="none" if mistaken else [colour],
                edgecolors=[colour],
                marker=MARKERS[value % len(MARKERS)],
                linewidths=0.6,
                label=f"{classes[value]}, wrong" if mistaken else str(classes[value]),
                zorder=2 if mistaken else 3,
            )
    ax.set(xticks=[], yticks=[])
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.04)
    ax.spines[["top", "right"]].set_visible(True)


def class_handles(
    present: Sequence[int], classes: Sequence[str], palette: NDArray[np.uint8], wrong: bool
) -> list[Line2D]:
    """Return the entries of a legend: one per class, and what a hollow marker means."""
    handles = [
        Line2D(
            [],
            [],
            linestyle="none",
            marker=MARKERS[value % len(MARKERS)],
            color=visible(palette[value] / 255),
            label=str(classes[value]),
        )
        for value in present
    ]
    if wrong:
        hollow = {"markerfacecolor": "none", "markeredgecolor": GREY, "markeredgewidth": 0.8}
        handles.append(Line2D([], [], linestyle="none", marker="o", label="hollow: predicted wrongly", **hollow))
    return handles


def draw_panels(panels: Sequence[tuple[str, NDArray[np.integer]]], data: Map) -> Figure:
    """Draw two planes side by side above one legend.

    Parameters
    ----------
    panels : sequence of (title, rows)
        Rows of the map that each panel shows.
    data : Map
    """
    extent = np.concatenate([np.ptp(data.xy[rows], axis=0)[None] for _, rows in panels]).max(0)
    ratio = float(np.clip(extent[1] / max(extent[0], 1e-6), 0.6, 1.1))
    figure = new_figure(PAGE, ratio * PAGE / len(panels) + 18 * MILLIMETRE)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    wrong = data.prediction != data.label
    for letter, ax, (title, rows) in zip("abcdef", axes, panels, strict=False):
        draw_pixels(ax, data.xy[rows], data.label[rows], wrong[rows], data.classes, data.palette)
        ax.set_title(f"({letter}) {title}")
    shown = np.concatenate([rows for _, rows in panels])
    present = np.unique(data.label[shown]).tolist()
    handles = class_handles(present, data.classes, data.palette, bool(wrong[shown].any()))
    figure.legend(handles=handles, loc="outside lower center", ncols=7, handletextpad=0.2, columnspacing=1.2)
    return figure


def draw_sampling(data: Map) -> Figure:
    """Correctly predicted pixels beside pixels drawn by label, on one plane."""
    panels = [
        (str(data.titles[0]), np.flatnonzero(data.by_correct)),
        (str(data.titles[1]), np.flatnonzero(data.by_label)),
    ]
    return draw_panels(panels, data)


def draw_losses(data: Map) -> Figure:
    """The same pixels as two runs see them."""
    return draw_panels([(str(title), np.flatnonzero(data.panel == i)) for i, title in enumerate(data.titles)], data)
