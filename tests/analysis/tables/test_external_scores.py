"""Scores entered by hand."""

import pytest

from analysis.tables.values import load_external, unplaced
from pne.errors import UserError
from pne.spec import load_track

GOOD = "scores:\n  - {table: cityscapes, row: deeplabv3, miou: 78.1, date: 2026-01-31, url: https://example.org}\n"


def test_a_score_belongs_to_its_row_or_run(tmp_path):
    path = tmp_path / "external.yaml"
    path.write_text(GOOD + "  - {run: some-run-12345678, miou: 79.3, date: 2026-01-31, url: https://example.org}\n")
    by_row, by_run = load_external(path)
    assert by_row.belongs_to("paper", "cityscapes", "deeplabv3", ())
    assert not by_row.belongs_to("quick", "cityscapes", "deeplabv3", ())
    assert not by_row.belongs_to("paper", "cityscapes", "deeplabv3_pne", ())
    assert by_run.belongs_to("paper", "any", "row", ("other", "some-run-12345678"))
    assert not by_run.belongs_to("paper", "any", "row", ("other",))


@pytest.mark.parametrize("content", [None, "", "scores: []\n", "scores:\n"])
def test_no_scores_are_none(tmp_path, content):
    if content is not None:
        (tmp_path / "external.yaml").write_text(content)
    assert load_external(tmp_path / "external.yaml") == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("miou: 78.1", "miou: 781", r"scores\.0\.miou: .*less than or equal to 100; got 781"),
        ("row: deeplabv3, ", "", r"scores\.0: .*a table and a row"),
        ("date: 2026-01-31", "date: soon", r"scores\.0\.date"),
        ("miou", "mIoU", r"scores\.0\.mIoU: unknown key; allowed: .*miou"),
        ("scores:", "score:", r"score: unknown key; did you mean scores\?"),
        ("scores:\n", "", "expected keys and values, got .*; allowed: scores"),
        ("scores:\n", "scores:\n" + GOOD.splitlines()[1] + "\n", r"scores\.1: a second score of paper\.cityscapes"),
        ("table: cityscapes", "table: cityscape", r"scores\.0\.table: no table 'cityscape'; .*cityscapes"),
        ("row: deeplabv3", "row: deeplabv", r"scores\.0\.row: table cityscapes has no row 'deeplabv'; .*deeplabv3"),
        ("{table", "{{table", "YAML"),
    ],
)
def test_wrong_entries_are_one_clear_error(tmp_path, in_repository, old, new, message):
    path = tmp_path / "external.yaml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(UserError, match=message) as error:
        load_external(path, load_track("paper", tables=["cityscapes"]))
    assert str(path) in str(error.value)


def test_scores_of_runs_that_are_not_there_are_told(tmp_path, in_repository):
    paper = load_track("paper", tables=["cityscapes"])
    run = paper.tables["cityscapes"].rows["deeplabv3"].runs[0]
    path = tmp_path / "external.yaml"
    entry = "  - {{run: {}, miou: 79.3, date: 2026-01-31, url: https://example.org}}\n"
    path.write_text("scores:\n" + entry.format(run) + entry.format(f"{run}x"))
    assert unplaced(load_external(path, paper), paper) == (f"{run}x",)
