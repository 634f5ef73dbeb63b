"""Curves of a training: loss terms, anchors and sets, similarities, weights, from ``history.jsonl``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import DASHES, MILLIMETRE, PAGE, SERIES, new_figure
from pne.errors import UserError


@dataclass(frozen=True)
class Panel:
    """One plot: its label and the scalars drawn in it, the second one dashed."""

    title: str
    scalars: tuple[str, ...]
    from_zero: bool = False


PANELS = (
    Panel("cross entropy", ("loss_ce",)),
    Panel("contrastive loss", ("loss_contrast",)),
    Panel("anchors per iteration", ("contrast_anchors",), from_zero=True),
    Panel("sets per iteration", ("contrast_sets",), from_zero=True),
    Panel(
        "cosine: positives (full), negatives (dots)", ("contrast_positive_similarity", "contrast_negative_similarity")
    ),
    Panel("standard deviation of the weights", ("contrast_weight_std",)),
)


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
    scalars = [name for panel in PANELS for name in panel.scalars]
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
    for ax, panel in zip(axes.flat, PANELS, strict=True):
        plot_scalar(ax, curves, rows, panel.scalars)
        ax.set_title(panel.title, fontsize=7)
        if panel.from_zero and ax.lines:
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
