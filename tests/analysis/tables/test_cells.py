"""How numbers, labels and footnotes are written."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.latex_text import check_latex, quote, to_latex, to_plain
from analysis.tables.cells import Cell, CellKind, write_number
from analysis.tables.layout import write_cell
from pne.errors import UserError


def written(cell: Cell) -> str:
    return write_cell(cell, to_plain, minus="−", plus_minus=" ± ", missing="–")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (Cell(CellKind.MEASURED, value=80.26), "80.3"),
        (Cell(CellKind.MEASURED, value=46.756, delta=1.104, decimals=2), "46.76(+1.10)"),
        (Cell(CellKind.MEASURED, value=80.26, delta=-0.31), "80.3(−0.3)"),
        (Cell(CellKind.MEASURED, value=80.26, delta=-0.01), "80.3(+0.0)"),
        (Cell(CellKind.MEASURED, value=80.26, spread=0.24, seeds=3, delta=2.0), "80.3 ± 0.2(+2.0)"),
        (Cell(CellKind.SETTING, value=160000, decimals=None), "160,000"),
        (Cell(CellKind.SETTING, value=6e-5, decimals=None), "0.00006"),
        (Cell(CellKind.SETTING, text=r"$\surd$"), "✓"),
        (Cell(CellKind.MISSING), "–"),
        (Cell(CellKind.NOT_REPORTED), "-"),
        (Cell(CellKind.EMPTY), ""),
    ],
)
def test_cells_are_written_as_tables_print_them(cell, expected):
    assert written(cell) == expected


@given(st.floats(-1000, 1000), st.integers(0, 4))
def test_written_numbers_are_the_rounded_value_and_zero_has_no_minus(value, decimals):
    text = write_number(value, decimals)
    assert float(text) == pytest.approx(value, abs=0.5001 * 10**-decimals)
    assert not (float(text) == 0 and text.startswith("-"))


def test_latex_text_is_escaped_outside_of_mathematics_and_keys_alone():
    assert to_latex(r"100% of a_b & c, 5\% too") == r"100\% of a\_b \& c, 5\% too"
    assert to_latex(r"$x_1$ of \cite{a_b} and Eq.\ref{sup_loss}") == r"$x_1$ of \cite{a_b} and Eq.\ref{sup_loss}"
    assert to_latex("τ ≤ 1 ± 2") == r"$\tau$ $\leq$ 1 $\pm$ 2"


@given(st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), max_size=40))
def test_quoted_text_reads_the_same_aloud(text):
    assert to_plain(quote(text)) == " ".join(text.replace('"', "”").split())


def test_text_that_pdflatex_lacks_is_replaced():
    assert quote("漢 C:\\temp\\a_1 50% {x}") == (r"? C:\textbackslash{}temp\textbackslash{}a\_1 50\% \{x\}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("5$", "a $ without its partner"), ("x^2", "has ^ outside"), ("{a", "a brace without"), ("}a{", "a brace"),
        ("*a", "begins with"), ("[1cm]", "begins with"), ("=1+1", "begins with"), ("@x", "begins with"),
        (r"a\b", "unknown command ['b']"), ("漢", "LaTeX lacks"), ("H₂O", "LaTeX lacks"),
    ],
)  # fmt: skip
def test_labels_that_would_print_wrongly_are_refused(text, problem):
    with pytest.raises(UserError, match=re.escape(problem)) as caught:
        check_latex(text, "own.yaml: rows.a.label")
    assert str(caught.value).startswith(f"own.yaml: rows.a.label: {text!r} ")
    check_latex(r"+ 5\% of $x^2_{a}$ at 3\$ \{a\} †\cite{a} – \textbf{b}", "own.yaml")
