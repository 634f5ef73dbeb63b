"""Plots of numbers: curves of a training, changes of each class's IoU, mIoU over a swept option."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from analysis import uncertainty
from analysis.figures.style import BLUE, DASHES, GAIN, GREY, LOSS, MILLIMETRE, PAGE, SERIES, new_figure
from analysis.latex_text import to_plain
from analysis.uncertainty import FEWEST_SEEDS, LEVEL, ClassCounts
from pne.errors import UserError
from pne.spec import ResolvedRow, ResolvedTable

MOST_CLASSES = 24  # of a data set in the figure of IoU; the largest changes where there are more
CLOSE = 0.065  # of the axis, between two ticks
OUTLIER = 5.0  # a value is off the scale when this many times the others' range away from them
LOOKS = {"published": (GREY, "s"), "measured": (BLUE, "o")}


# The plots of a training: what each is titled, and the scalars drawn in it, the second one dashed.
PANELS = {
    "cross entropy": ("loss_ce",),
    "contrastive loss": ("loss_contrast",),
    "anchors per iteration": ("contrast_anchors",),
    "sets per iteration": ("contrast_sets",),
    "cosine: positives (full), negatives (dots)": ("contrast_positive_similarity", "contrast_negative_similarity"),
    "standard deviation of the weights": ("contrast_weight_std",),
}
COUNTS = ("contrast_anchors", "contrast_sets")  # drawn from 0


def read_history(path: Path) -> pd.DataFrame:
    """Read the scalars of one training, one line per log interval.

    Cross entropy of the last decode head becomes ``loss_ce``.

    Raises
    ------
    UserError
        If the file is missing or holds no lines.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        raise UserError(f"{path}: no history; the run has not been trained") from None
    except ValueError as error:
        raise UserError(f"{path}: not readable ({error}); train the run again") from error
    if not lines:
        raise UserError(f"{path}: the history is empty; train the run again")
    frame = pd.DataFrame(lines)
    heads = sorted(name for name in frame.columns if name.startswith("decode") and name.endswith(".loss_ce"))
    if heads:
        frame["loss_ce"] = frame[heads[-1]]
    return frame


def gather_curves(histories: Mapping[str, Sequence[pd.DataFrame]]) -> pd.DataFrame:
    """Average the seeds of each row.

    Parameters
    ----------
    histories : mapping
        By label of the row, one frame per seed.

    Returns
    -------
    DataFrame
        Columns row, scalar, iter, value, low, high (mean, smallest and largest seed).
    """
    scalars = [name for of_panel in PANELS.values() for name in of_panel]
    parts = []
    for label, frames in histories.items():
        joined = pd.concat([frame.reindex(columns=["iter", *scalars]) for frame in frames])
        long = joined.melt("iter", var_name="scalar").dropna(subset="value")
        statistics = long.groupby(["scalar", "iter"])["value"].agg(value="mean", low="min", high="max").reset_index()
        parts.append(statistics.assign(row=label))
    return pd.concat(parts, ignore_index=True)[["row", "scalar", "iter", "value", "low", "high"]]


def plot_scalar(ax: Axes, curves: pd.DataFrame, rows: Sequence[str], scalars: Sequence[str]) -> None:
    """Draw the curves of some scalars, one colour per row, a band over the seeds; scalars that stay 0 are left out."""
    for number, row in enumerate(rows):
        for position, scalar in enumerate(scalars):
            curve = curves[(curves["row"] == row) & (curves["scalar"] == scalar)]
            if curve.empty or not curve["value"].any():
                continue
            style = DASHES[number % len(DASHES)] if len(scalars) == 1 else ("-", ":")[position]
            colour = SERIES[number % len(SERIES)]
            ax.plot(curve["iter"], curve["value"], color=colour, linestyle=style, label=f"{row}/{scalar}")
            if (curve["high"] > curve["low"]).any():
                ax.fill_between(curve["iter"], curve["low"], curve["high"], color=colour, alpha=0.15, linewidth=0)


def draw_curves(curves: pd.DataFrame, rows: Sequence[str]) -> Figure:
    """Draw every panel, above one legend of the rows."""
    figure = new_figure(PAGE, 100 * MILLIMETRE)
    axes = figure.subplots(2, 3, sharex=True)
    for ax, (title, scalars) in zip(axes.flat, PANELS.items(), strict=True):
        plot_scalar(ax, curves, rows, scalars)
        ax.set_title(title, fontsize=7)
        if scalars[0] in COUNTS and ax.lines:
            ax.set_ylim(bottom=0)
        if not ax.lines:
            ax.text(0.5, 0.5, "none of these runs has it", transform=ax.transAxes, ha="center", va="center", fontsize=7)
            ax.set_yticks([])
    for ax in axes[-1]:
        ax.set_xlabel("iteration")
    handles = [
        Line2D([], [], color=SERIES[i % len(SERIES)], linestyle=DASHES[i % len(DASHES)], label=row)
        for i, row in enumerate(rows)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(rows)))
    return figure


def iou_changes(
    baseline: Sequence[ClassCounts], ours: Sequence[ClassCounts], classes: Sequence[str], dataset: str
) -> pd.DataFrame:
    """Estimate the change of each class's IoU, in percentage points.

    Parameters
    ----------
    baseline, ours : sequence of ClassCounts
        One per seed, in the same order.
    classes : sequence of str
    dataset : str
        See `analysis.uncertainty.image_blocks`.

    Returns
    -------
    DataFrame
        Columns class, baseline, ours, change, low, high, certain; classes that no image has are left out. The interval
        is over seeds, and ``certain`` says whether the change differs from 0 at 5 % after Holm over the classes; with
        too few seeds the interval is over test images, and nothing is certain.

    Raises
    ------
    UserError
        If the runs were evaluated on different images.
    """
    blocks = uncertainty.image_blocks(uncertainty.common_images(one.names for one in (*baseline, *ours)), dataset)
    weights = uncertainty.leave_out(blocks)
    sides = ([uncertainty.class_iou(one, weights) for one in side] for side in (baseline, ours))
    before, after = (np.stack(side, -1) for side in sides)  # (1 + B, C, n)
    known = np.isfinite(after[0, :, 0])
    samples = (after - before)[:, known]
    change = uncertainty.over_seeds(samples[0])
    low, high = change.interval()[1:]
    if len(ours) < FEWEST_SEEDS:
        holding = [len(np.unique(blocks[one])) for one in (ours[0].labelled[:, known] > 0).T]
        low, high = uncertainty.image_interval(samples.mean(-1), holding)[1:]
    return pd.DataFrame(
        {
            "class": np.asarray(classes)[known],
            "baseline": before[0, known].mean(-1),
            "ours": after[0, known].mean(-1),
            "change": change.value,
            "low": low,
            "high": high,
            "certain": uncertainty.holm(uncertainty.difference_p(change)) <= 1 - LEVEL,
        }
    )


def largest_changes(changes: pd.DataFrame, most: int = MOST_CLASSES) -> pd.DataFrame:
    """Sort by change, largest gain first; where there are too many classes, keep the largest absolute changes."""
    kept = changes.assign(size=changes["change"].abs()).nlargest(most, "size", keep="first").drop(columns="size")
    return kept.sort_values("change", ascending=False, ignore_index=True)


def plot_changes(ax: Axes, changes: pd.DataFrame) -> None:
    """Draw one bar per class, gains and losses in their colours, faint where the change is not certain."""
    place = np.arange(len(changes))
    for row, line in zip(place, changes.itertuples(), strict=True):
        ax.barh(row, line.change, color=GAIN if line.change >= 0 else LOSS, alpha=1 if line.certain else 0.35)
    ends = np.abs(changes[["low", "high"]].to_numpy().T - changes["change"].to_numpy())
    ax.errorbar(changes["change"], place, xerr=ends, fmt="none", ecolor="black", elinewidth=0.7, capsize=1.5)
    ax.axvline(0, color=GREY, linewidth=0.6)
    ax.set_yticks(place, changes["class"])
    ax.set_ylim(len(changes) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("change of IoU (points)")


def draw_changes(parts: Sequence[tuple[str, pd.DataFrame]]) -> Figure:
    """Draw one panel per data set."""
    longest = max(len(changes) for _, changes in parts)
    figure = new_figure(PAGE, (longest * 3.6 + 18) * MILLIMETRE)
    axes = figure.subplots(1, len(parts), squeeze=False)[0]
    for ax, (title, changes) in zip(axes, parts, strict=True):
        plot_changes(ax, changes)
        ax.set_title(title, fontsize=7)
    return figure


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
    columns = ["group", "x", "side", "value", "low", "high", "seeds"]
    records = []
    for row in rows:
        x, group = float(row.declaration.label), row.declaration.group
        printed = row.declaration.published.get("miou")
        if printed is not None and printed.value is not None:
            records.append((group, x, "published", printed.value, printed.value, printed.value, 1))
        measured = [miou[run] for run in row.runs.values() if run in miou]
        if measured:
            records.append((group, x, "measured", np.mean(measured), min(measured), max(measured), len(measured)))
    return pd.DataFrame(records, columns=columns).sort_values(["group", "side", "x"], ignore_index=True)


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


def about_sweep(points: pd.DataFrame, comparable: bool) -> dict[str, bool]:
    """Return what the caption explains: whether points have bars, and whether one is off the scale."""
    return {"bars": bool((points["seeds"] > 1).any()), "cut": is_cut(points, comparable)}


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


def draw_sweeps(points: pd.DataFrame, titles: Mapping[str, str], comparable: bool) -> Figure:
    """Draw one column of panels per group.

    Published and measured values share their axes where they may be compared, else they are on axes of their own.
    """
    groups = [group for group in titles if group in set(points["group"])]
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
        axes[-1, column].set_xlabel(titles[group])
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
        group: f"{'weight' if group == 'alpha' else group.replace('_', ' ')} {to_plain(head)}"
        for group, head in table.declaration.groups.items()
    }
