"""The published tables hold exactly what the paper prints, compared cell by cell with its LaTeX source."""

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from analysis.tables.layout import PrintedTable, print_published, render
from pne.spec.catalogue import read_catalogue

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
DECLARED = {name: table for name, table in read_catalogue(EXPERIMENTS).tables.items() if table.paper}


@dataclass(frozen=True)
class PaperCell:
    """A cell of a LaTeX source: its text without marks, and the marks."""

    text: str
    bold: bool = False
    dagger: bool = False
    cite: str | None = None

    @property
    def number(self) -> float | None:
        match = re.match(r"[\d.,]+(?=\(|$)", self.text)
        return float(match[0].replace(",", "")) if match else None

    @property
    def delta(self) -> float | None:
        match = re.fullmatch(r"[\d.]+\(([+-][\d.]+)\)", self.text)
        return float(match[1]) if match else None


@dataclass(frozen=True)
class PaperTable:
    """A table of a LaTeX source: lines of cells, and the numbers of the lines below which a rule stands."""

    caption: str
    lines: tuple[tuple[PaperCell, ...], ...]
    rules: tuple[int, ...]


def parse_cell(source: str) -> PaperCell:
    cite = re.search(r"\\cite\{([^}]*)\}", source)
    dagger = r"\dag" in source
    text = re.sub(r"\\cite\{[^}]*\}|\\dag\b", "", source).strip()
    bold = re.fullmatch(r"\\textbf\{(.*)\}", text)
    return PaperCell(re.sub(r"\s+", "", bold[1] if bold else text), bool(bold), dagger, cite[1] if cite else None)


def parse_table(source: str) -> PaperTable:
    caption = re.search(r"\\caption\{(.*)\}", source)[1]
    body = re.search(r"\\begin\{tabular\}\{[^\n]*\}\n(.*)\\end\{tabular\}", source, re.S)[1]
    body = re.sub(r"\\(toprule|bottomrule)(\[[^]]*\])?", "", body)
    lines, rules = [], []
    for part in body.split(r"\\"):
        for _ in re.findall(r"\\hline|\\midrule", part):
            rules.append(len(lines))
        part = re.sub(r"\\hline|\\midrule", "", part).strip()
        if part:
            lines.append(tuple(parse_cell(cell) for cell in part.split("&")))
    return PaperTable(re.sub(r"\s+", " ", caption).strip(), tuple(lines), tuple(rules))


@pytest.fixture(scope="module")
def paper(shared: Path) -> dict[str, PaperTable]:
    """Tables of the paper by LaTeX label."""
    source = (shared / "paper" / "paper.tex").read_text(encoding="utf-8")
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", source, re.S)
    return {re.search(r"\\label\{([^}]*)\}", table)[1]: parse_table(table) for table in tables}


@pytest.fixture(scope="module", params=DECLARED)
def both(request, paper) -> tuple[PrintedTable, PaperTable]:
    """A declared table as it is printed, and the paper's."""
    table = DECLARED[request.param]
    return print_published(table), paper[table.paper.label]


def test_every_table_of_the_paper_is_declared(paper):
    assert sorted(table.paper.label for table in DECLARED.values()) == sorted(paper)


def test_the_parser_reads_what_is_printed(paper):
    """Guards the comparison itself: a parser that lost cells would find two empty tables equal."""
    assert [len(paper[label].lines) for label in ("experiments_config", "city-val", "coco", "ADE20K")] == [5, 16, 12, 7]
    assert [len(paper[label].lines) for label in ("table1", "table2", "table3", "table4")] == [7, 7, 4, 4]
    assert paper["city-val"].lines[10][3] == PaperCell("78.5")
    assert paper["city-val"].lines[11][3] == PaperCell("80.8(+2.3)", bold=True)
    assert (paper["city-val"].lines[11][3].number, paper["city-val"].lines[11][3].delta) == (80.8, 2.3)
    assert paper["city-val"].lines[8][0] == PaperCell("EncNet", dagger=True, cite="zhang2018context")
    assert paper["table4"].rules == (2,)


def test_latex_equals_the_paper_cell_by_cell(both):
    published, expected = both
    # Below its head the paper draws a rule in every table that has one.
    assert parse_table(render(published, "tex", quoted_italic=False)) == expected


@pytest.mark.parametrize("both", sorted(set(DECLARED) - {"settings", "hyperparameters"}), indirect=True)
def test_csv_holds_the_numbers_of_the_paper(both):
    published, expected = both
    rows = list(csv.DictReader(io.StringIO(render(published, "csv", quoted_italic=False))))
    for row, printed in zip(rows, expected.lines[1:], strict=True):
        values = [row[key] for key in row if key.endswith("_published")]
        numbers = [cell.number for cell in printed if cell.number is not None or cell.text == "-"]
        assert [float(value) if value else None for value in values] == numbers
        deltas = [row[key] for key in row if key.endswith("_published_delta") and row[key]]
        assert [float(delta) for delta in deltas] == [cell.delta for cell in printed if cell.delta is not None]


def test_a_wrong_number_would_be_found(paper):
    """The comparison fails when a single declared digit, bold face or dagger differs."""
    table = DECLARED["cityscapes"]
    content = table.model_dump(exclude_unset=True)
    row = content["rows"]["deeplabv3_pne"]

    def lines_with(**changes: object) -> list:
        other = content | {"rows": content["rows"] | {"deeplabv3_pne": row | changes}}
        return parse_table(render(print_published(type(table).model_validate(other)), "tex", quoted_italic=False)).lines

    assert lines_with() == paper["city-val"].lines
    for cell in (
        {"value": 80.9, "delta": 2.3, "bold": True},
        {"value": 80.8, "delta": 2.4, "bold": True},
        {"value": 80.8, "delta": 2.3},
    ):
        assert lines_with(published=row["published"] | {"val": cell}) != paper["city-val"].lines
    assert not row.get("dagger")
    assert lines_with(dagger=True) != paper["city-val"].lines
