"""Printed tables as LaTeX (booktabs), and a document that shows them all."""

from collections.abc import Iterable, Sequence

from analysis.cells import Cell, CellKind, write_cell
from analysis.latex_text import to_latex
from analysis.printed import Head, PrintedTable, cell_marks

_PREAMBLE = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage{booktabs}
\usepackage{graphicx}
\usepackage[a4paper, margin=2cm]{geometry}
"""


def render_latex(table: PrintedTable, *, quoted_italic: bool) -> str:
    """Write a table environment; it needs booktabs and graphicx.

    A table wider than the line is scaled down to it.

    Parameters
    ----------
    table : PrintedTable
    quoted_italic : bool
        Whether values quoted from the literature are set in italics.
    """
    marks = table.footnotes()
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{to_latex(table.caption)}}}",
        rf"\label{{{table.label}}}",
        r"\smallskip",
        r"\small",
        r"\sbox0{%",
        rf"\begin{{tabular}}{{{''.join(table.alignment)}}}",
        r"\toprule",
    ]
    for index, head in enumerate(table.head):
        lines.append(" & ".join(map(_head, head)) + r" \\")
        if index + 1 < len(table.head):
            lines.append(_rules_below(head))
    for index, block in enumerate(table.blocks):
        if index or table.head:
            lines.append(r"\midrule")
        for line in block:
            lines.append(" & ".join(_cell(cell, marks, quoted_italic) for cell in line) + r" \\")
    lines += [
        r"\bottomrule",
        r"\end{tabular}}%",
        r"\ifdim\wd0>\linewidth \resizebox{\linewidth}{!}{\usebox0}\else \usebox0 \fi",
    ]
    below = [to_latex(remark) for remark in table.remarks]
    below += [rf"\textsuperscript{{{mark}}}\,{to_latex(note)}" for note, mark in marks.items()]
    if below:
        lines += [r"\par\smallskip", r"\parbox{\linewidth}{\footnotesize\raggedright", "\\\\\n".join(below), "}"]
    return "\n".join([*lines, r"\end{table}", ""])


def render_document(names: Iterable[str], cites: Sequence[str], references: dict[str, str]) -> str:
    r"""Write a document that inputs ``<name>.tex`` beside it, for each that exists.

    Parameters
    ----------
    names : iterable of str
        Tables, in order.
    cites : sequence of str
        Keys of the paper's bibliography that the tables cite; they are listed by their key.
    references : dict of str to str
        What ``\ref`` prints for labels of the paper.
    """
    lines = [_PREAMBLE.rstrip(), r"\makeatletter"]
    lines += [rf"\@namedef{{r@{label}}}{{{{{number}}}{{}}}}" for label, number in references.items()]
    lines += [r"\makeatother", r"\begin{document}"]
    lines += [rf"\InputIfFileExists{{{name}.tex}}{{}}{{}}" for name in names]
    lines.append(r"\clearpage")
    if cites:
        lines += [r"\begin{thebibliography}{99}"]
        lines += [rf"\bibitem{{{key}}} \texttt{{\detokenize{{{key}}}}} in the paper's bibliography." for key in cites]
        lines += [r"\end{thebibliography}"]
    return "\n".join([*lines, r"\end{document}", ""])


def _head(head: Head) -> str:
    text = to_latex(head.text)
    return text if head.span == 1 else rf"\multicolumn{{{head.span}}}{{c}}{{{text}}}"


def _rules_below(heads: Sequence[Head]) -> str:
    rules, column = [], 1
    for head in heads:
        if head.span > 1:
            rules.append(rf"\cmidrule(lr){{{column}-{column + head.span - 1}}}")
        column += head.span
    return " ".join(rules)


def _cell(cell: Cell, marks: dict[str, str], quoted_italic: bool) -> str:
    written = write_cell(cell, to_latex, minus="$-$", plus_minus=r"\,$\pm$\,", missing="--")
    if cell.bold:
        written = rf"\textbf{{{written}}}"
    if cell.kind is CellKind.QUOTED and quoted_italic:
        written = rf"\textit{{{written}}}"
    if cell.notes:
        written += rf"\textsuperscript{{{','.join(cell_marks(cell, marks))}}}"
    return written
