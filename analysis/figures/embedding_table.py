"""Print the metrics of pixel embeddings as LaTeX, CSV and Markdown."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analysis.embedding import HIGHER_IS_BETTER, METRICS, OVERALL
from analysis.latex_text import to_latex, to_plain

HEADS = {
    "alignment": "align.",
    "uniformity": "unif.",
    "intra_cosine": "cos within",
    "inter_cosine": "cos between",
    "silhouette": "silhouette",
    "knn_purity": "kNN (%)",
    "probe_accuracy": "probe (%)",
}
SPACES = {"penultimate": "penultimate layer", "projection": "projection"}
NOTE = (
    "Embeddings are scaled to unit length. Alignment: mean squared distance of two pixels of one class, exactly "
    "2 − 2 · cos within. Uniformity: log of the mean of exp(−2 · squared distance) over all pairs of pixels. cos: mean "
    "cosine of two pixels of one class, of two classes. Silhouette: mean, with cosine distance. kNN: share of the 10 "
    "nearest pixels of other images that are of the same class. Probe: accuracy of a linear classifier fitted on other "
    "images. Uniformity counts pixels alike, everything else classes. ↑, ↓: higher, lower is better; bold: best of the "
    "block. Brackets (sub- and superscripts): 95 % interval over resampled test images; silhouettes, neighbours and "
    "probe are not computed again for them. The CSV file holds more: the projection by class, and all pairs of the "
    "classes named here."
)


def compared_with(numbers: pd.DataFrame, labels: Mapping[str, str]) -> str:
    """Say what stars compare with and where there are none; LaTeX text."""
    compared = numbers[numbers["baseline"].isin(list(labels))]
    baselines = list(dict.fromkeys(compared["baseline"]))
    if not baselines:
        return "No row has a baseline, so that there are no stars."
    names = " or ".join(labels[key] for key in baselines)
    kind = "its baseline" if len(baselines) == 1 else "its own baseline (column baseline of the CSV file)"
    text = f"*: the interval of a row's difference to {kind}, {names}, on the same resamples leaves 0 out."
    without = [space for space in dict.fromkeys(numbers["space"]) if space not in set(compared["space"])]
    if without:
        text += (
            f" No baseline has a {' or '.join(SPACES[space] for space in without)}, so that nothing is marked there."
        )
    return text


def blocks(numbers: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (space, scope) of each printed block; the CSV holds all others too.

    All classes in both spaces, then in the penultimate layer each class in focus and the first pair of them.
    """
    known = list(dict.fromkeys(zip(numbers["space"], numbers["scope"], strict=True)))
    overall = [(space, OVERALL) for space in SPACES if (space, OVERALL) in known]
    scopes = [scope for space, scope in known if space == "penultimate" and scope != OVERALL]
    pairs = [scope for scope in scopes if ", " in scope]
    return overall + [("penultimate", scope) for scope in scopes if scope not in pairs[1:]]


def block_title(space: str, scope: str) -> str:
    """Name a block: its space and what it is about."""
    subject = "all classes" if scope == OVERALL else scope.replace(", ", " against ")
    return f"{SPACES[space]}, {subject}"


def _decimals(metric: str) -> int:
    return 1 if metric in ("knn_purity", "probe_accuracy") else 3


def _best(block: pd.DataFrame) -> dict[str, float]:
    best = {}
    for metric, values in block.groupby("metric")["value"]:
        if len(values) > 1:
            best[metric] = values.max() if HIGHER_IS_BETTER[metric] else values.min()
    return best


def _certain(cell: pd.Series) -> bool:
    return bool(cell["delta_low"] > 0 or cell["delta_high"] < 0)


def render_rows(numbers: pd.DataFrame, labels: Mapping[str, str], latex: bool) -> list[tuple[str, list[list[str]]]]:
    """Write the cells of every block.

    Parameters
    ----------
    numbers : DataFrame
        Columns row, space and those of `analysis.embedding.summarise`.
    labels : mapping
        LaTeX label by key of the row, in order.
    latex : bool
        LaTeX instead of Markdown.

    Returns
    -------
    list of (title, lines)
        Each line: label and one cell per metric, empty where the metric has no meaning for the block.
    """
    rendered = []
    for space, scope in blocks(numbers):
        block = numbers[(numbers["space"] == space) & (numbers["scope"] == scope)]
        best = _best(block)
        lines = []
        for key, label in labels.items():
            cells = {cell["metric"]: cell for _, cell in block[block["row"] == key].iterrows()}
            if not cells:
                continue
            texts = [_write(cells.get(metric), best.get(metric), latex) for metric in METRICS]
            lines.append([to_latex(label) if latex else to_plain(label), *texts])
        rendered.append((block_title(space, scope), lines))
    return rendered


def _write(cell: pd.Series | None, best: float | None, latex: bool) -> str:
    if cell is None:
        return ""
    digits = _decimals(cell["metric"])
    value, low, high = (f"{cell[key]:.{digits}f}" for key in ("value", "low", "high"))
    bold, mark = cell["value"] == best, "*" if _certain(cell) else ""
    known = np.isfinite(cell["low"])
    if latex:
        number = rf"\mathbf{{{value}}}" if bold else value
        limits = rf"_{{{low}}}^{{{high}}}" if known else ""
        return f"${number}{limits}${mark}"
    number = f"**{value}**" if bold else value
    limits = f" [{low}, {high}]" if known else ""
    return f"{number}{mark}{limits}".replace("-", "−")


def column_heads() -> list[str]:
    return [f"{HEADS[metric]} {'↑' if HIGHER_IS_BETTER[metric] else '↓'}" for metric in METRICS]


def render_markdown(numbers: pd.DataFrame, labels: Mapping[str, str], caption: str, notes: Sequence[str]) -> str:
    """Write one pipe table; each block begins with a line of its own."""
    heads = ["", *column_heads()]
    lines = [f"**{to_plain(caption)}**", "", f"| {' | '.join(heads)} |", f"| :-- {'| :-: ' * len(METRICS)}|"]
    for title, rows in render_rows(numbers, labels, latex=False):
        lines.append(f"| *{title}* {'| ' * len(METRICS)}|")
        lines += [f"| {' | '.join(row)} |".replace("**|", "** |") for row in rows]
    return "\n".join([*lines, "", "  \n".join(to_plain(note).replace("*:", "\\*:") for note in notes)]) + "\n"


def render_latex(numbers: pd.DataFrame, labels: Mapping[str, str], caption: str, notes: Sequence[str]) -> str:
    """Write a table environment; it needs booktabs and graphicx."""
    signs = {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "%": r"\%"}
    heads = [re.sub("[↑↓%]", lambda found: signs[found[0]], head) for head in column_heads()]
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{to_latex(caption)}}}",
        r"\label{embedding}",
        r"\small",
        r"\renewcommand{\arraystretch}{1.25}",
        r"\sbox0{%",
        rf"\begin{{tabular}}{{l{'c' * len(METRICS)}}}",
        r"\toprule",
        " & ".join(["", *heads]) + r" \\",
    ]
    for title, rows in render_rows(numbers, labels, latex=True):
        lines += [r"\midrule", rf"\multicolumn{{{len(METRICS) + 1}}}{{l}}{{\textit{{{to_latex(title)}}}}} \\"]
        lines += [" & ".join(row) + r" \\" for row in rows]
    lines += [
        r"\bottomrule",
        r"\end{tabular}}%",
        r"\ifdim\wd0>\linewidth \resizebox{\linewidth}{!}{\usebox0}\else \usebox0 \fi",
        r"\par\smallskip",
        r"\parbox{\linewidth}{\footnotesize\raggedright",
        "\\\\\n".join(to_latex(note.replace("↑, ↓", r"$\uparrow$, $\downarrow$")) for note in notes),
        "}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)
