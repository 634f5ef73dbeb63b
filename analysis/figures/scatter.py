"""Draw pixels on t-SNE planes, coloured and marked by class."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from analysis.figures.style import BLACK, MARKERS, MILLIMETRE, PAGE, new_figure, visible
from analysis.figures.tsne import Map

SIZE = 9.0  # of a marker, points squared
HOLLOW = "d"  # of the legend's entry for wrong predictions
MARGIN = 0.04  # around the points, of their extent


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
    ax.margins(MARGIN)
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
        # Black and of a shape that no class has: it stands for every hollow marker.
        hollow = {"markerfacecolor": "none", "markeredgecolor": BLACK, "markeredgewidth": 0.8}
        handles.append(Line2D([], [], linestyle="none", marker=HOLLOW, label="hollow: predicted wrongly", **hollow))
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
    figure = new_figure(PAGE, ratio * PAGE / len(panels) + 18 * MILLIMETRE)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    wrong = data.prediction != data.label
    for letter, ax, (title, rows) in zip("abcdef", axes, panels, strict=False):
        draw_pixels(ax, data.xy[rows], data.label[rows], wrong[rows], data.classes, data.palette)
        if one_plane:
            ax.set(xlim=_widened(low[0], high[0]), ylim=_widened(low[1], high[1]))
            ax.set_aspect("equal", adjustable="box")
        ax.set_title(f"({letter}) {title}")
    present = np.unique(data.label[shown]).tolist()
    handles = class_handles(present, data.classes, data.palette, bool(wrong[shown].any()))
    figure.legend(handles=handles, loc="outside lower center", ncols=7, handletextpad=0.2, columnspacing=1.2)
    return figure


def _widened(low: float, high: float) -> tuple[float, float]:
    margin = MARGIN * max(high - low, 1e-6)
    return low - margin, high + margin


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
