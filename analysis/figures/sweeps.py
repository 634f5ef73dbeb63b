"""mIoU over a swept option, published and measured."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from analysis.figures.style import BLUE, GREY, MILLIMETRE, PAGE, new_figure
from analysis.latex_text import to_plain
from pne.declaration.resolved import ResolvedRow, ResolvedTable

COLUMNS = ("group", "x", "side", "value", "low", "high", "seeds")
CLOSE = 0.065  # of the axis, between two ticks
OUTLIER = 5.0  # a value is off the scale when this many times the others' range away from them


def sweep_values(rows: Iterable[ResolvedRow], miou: Mapping[str, float]) -> pd.DataFrame:
    """Collect the points of a sweep.

    Parameters
    ----------
    rows : iterable of ResolvedRow
        Of a table of layout sweep; their labels are numbers.
    miou : mapping
        Percent, by run; runs that are absent are left out.

    Returns
    -------
    DataFrame
        One line per group, value of the option and side (published, measured): mean over seeds, smallest, largest.
    """
    records = []
    for row in rows:
        x, group = float(row.declaration.label), row.declaration.group
        printed = row.declaration.published.get("miou")
        if printed is not None and printed.value is not None:
            records.append((group, x, "published", printed.value, printed.value, printed.value, 1))
        measured = [miou[run] for run in row.runs.values() if run in miou]
        if measured:
            records.append((group, x, "measured", np.mean(measured), min(measured), max(measured), len(measured)))
    return pd.DataFrame(records, columns=list(COLUMNS)).sort_values(["group", "side", "x"], ignore_index=True)


def axis_limits(points: pd.DataFrame) -> tuple[float, float]:
    """Return limits for the bulk of the points and their bars: a collapsed training would flatten everything else.

    They hold every point with its bar, unless the lowest means are further from the rest than five times its range.
    """
    ordered = np.sort(points["value"].to_numpy(float))
    first = 0
    for cut in range(1, max(1, len(ordered) // 3 + 1)):
        rest = ordered[cut:]
        if len(rest) >= 3 and rest[0] - ordered[cut - 1] > OUTLIER * max(rest[-1] - rest[0], 0.2):
            first = cut
    low, high = _span(points[points["value"] >= ordered[first]], 2.5 if first else 1.0)
    if first and ordered[first - 1] >= low:  # the bars of the rest reach that far anyway
        return _span(points, 1.0)
    return low, high


def _span(points: pd.DataFrame, room_below: float) -> tuple[float, float]:
    low, high = points["low"].min(), points["high"].max()
    margin = 0.12 * max(high - low, 0.5)
    return low - room_below * margin, high + margin


def panels_of(comparable: bool) -> list[list[str]]:
    """Sides that share their axes, from top to bottom."""
    return [["published", "measured"]] if comparable else [["published"], ["measured"]]


def is_cut(points: pd.DataFrame, comparable: bool) -> bool:
    """Whether a point is off the scale of its axes."""
    parts = (part[part["side"].isin(sides)] for _, part in points.groupby("group") for sides in panels_of(comparable))
    return any((part["value"] < axis_limits(part)[0]).any() for part in parts if len(part))


def describe_sweep(points: pd.DataFrame, comparable: bool) -> list[str]:
    """Say what is drawn, as sentences of the caption: bars and arrows only where there are some."""
    sentences = []
    seeds = points.loc[points["side"] == "measured", "seeds"]
    if (seeds > 1).any():
        sentences.append("Measured: mean over seeds, with bars from the smallest to the largest.")
    sentences.append(
        "Grey: published; blue: measured." if comparable else "Above: published; below: measured, on axes of their own."
    )
    if is_cut(points, comparable):
        sentences.append("Arrows: values below the axis.")
    return sentences


def plot_sweep(ax: Axes, points: pd.DataFrame, colour: str, marker: str, label: str, level: int = 0) -> None:
    """Draw one line of points with bars from the smallest to the largest seed; values below the axis become arrows.

    Set the limits of the axes first. ``level`` lifts the arrows, so that those of two lines stand apart.
    """
    floor, ceiling = ax.get_ylim()
    shown = points[points["value"] >= floor]
    bars = np.abs(shown[["low", "high"]].to_numpy(float).T - shown["value"].to_numpy(float))
    spread = bars if (points["seeds"] > 1).any() else None
    ax.errorbar(shown["x"], shown["value"], yerr=spread, color=colour, marker=marker, capsize=2, label=label)
    for point in points[points["value"] < floor].itertuples():
        foot = floor + (0.05 + 0.1 * level) * (ceiling - floor)
        ax.plot(point.x, foot, marker="v", color=colour, linestyle="none", label="_off the scale")
        last = len(points) > 1 and point.x == points["x"].max()
        ax.annotate(
            f"{point.value:.1f}",
            (point.x, foot),
            xytext=(-6 if last else 6, 0),
            textcoords="offset points",
            ha="right" if last else "left",
            va="center",
            fontsize=7,
        )


LOOKS = {"published": (GREY, "s"), "measured": (BLUE, "o")}


def draw_sweeps(points: pd.DataFrame, titles: Mapping[str, str], comparable: bool) -> Figure:
    """Draw one column of panels per group.

    Published and measured values share their axes where they may be compared, else they are on axes of their own.
    """
    groups = list(dict.fromkeys(points["group"]))
    groups = [group for group in titles if group in groups] or groups
    rows = panels_of(comparable)
    figure = new_figure(PAGE, (54 if comparable else 85) * MILLIMETRE)
    axes = figure.subplots(len(rows), len(groups), squeeze=False, sharex="col")
    for column, group in enumerate(groups):
        for line, sides in enumerate(rows):
            ax = axes[line, column]
            chosen = points[(points["group"] == group) & points["side"].isin(sides)]
            ax.set_ylabel(f"mIoU (%), {sides[0]}" if len(sides) == 1 else "mIoU (%)")
            if chosen.empty:
                ax.text(0.5, 0.5, "not measured yet", transform=ax.transAxes, ha="center", va="center")
                ax.set_yticks([])
                continue
            ax.set_ylim(axis_limits(chosen))
            for level, side in enumerate(sides):
                part = chosen[chosen["side"] == side]
                if len(part):
                    plot_sweep(ax, part, *LOOKS[side], label=side, level=level)
        _scale_x(axes[:, column], sorted(set(points.loc[points["group"] == group, "x"])))
        axes[-1, column].set_xlabel(to_plain(titles.get(group, group)))
    if comparable:
        drawn = [side for side in rows[0] if (points["side"] == side).any()]
        handles = [Line2D([], [], color=LOOKS[side][0], marker=LOOKS[side][1], label=side) for side in drawn]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _scale_x(axes: np.ndarray, values: list[float]) -> None:
    """Use a logarithmic axis where values span a decade, with the swept values as ticks."""
    for ax in axes:
        if values[0] > 0 and values[-1] / values[0] >= 10:
            ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xticks(values, tick_labels(values, ax.get_xscale() == "log"))


def tick_labels(values: Sequence[float], logarithmic: bool) -> list[str]:
    """Write tick labels of sorted values; one that would touch its neighbour goes to a second line."""
    place = np.log(values) if logarithmic else np.asarray(values, dtype=float)
    place = (place - place[0]) / max(place[-1] - place[0], 1e-9)
    labels, last = [], -1.0
    for value, here in zip(values, place, strict=True):
        fits = here - last >= CLOSE
        labels.append(f"{value:g}" if fits else f"\n{value:g}")
        last = here if fits else last
    return labels


def group_names(table: ResolvedTable) -> dict[str, str]:
    """Name the swept options: the table's own head of each group with the key in words, such as ``temperature τ``."""
    return {
        group: f"{re.sub('_', ' ', group)} {to_plain(head)}" if group != "alpha" else f"weight {to_plain(head)}"
        for group, head in table.declaration.groups.items()
    }
