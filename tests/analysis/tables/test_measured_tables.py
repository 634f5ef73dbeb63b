"""Measured tables: values, deltas, bold face, dashes and footnotes from real result files."""

import csv
import re
import shutil

import numpy as np
import pytest
from samples import run_of, write_progress
from scipy.stats import ttest_1samp

from analysis.report import table_page
from analysis.results import collect_runs, read_for_comparison
from analysis.tables.__main__ import main
from analysis.tables.cells import NO_BASELINE, UNFAIR_BEST, CellKind, Side
from analysis.tables.layout import INTERVALS, STARS, PrintedTable, print_measured, render
from analysis.tables.values import PARTIAL, ExternalScore, collect_values
from analysis.uncertainty import holm
from pne.engine.provenance import code_sha256
from pne.spec import load_track


def printed(track, name: str, scores=()) -> PrintedTable:
    frame = collect_runs(track.runs.values(), code_sha256)
    return print_measured(track.tables[name], track, collect_values(track, frame, scores))


def cell(table: PrintedTable, row: str, column: str = "miou", side: str = "measured"):
    record = next(record for record in table.records if record.key == row)
    return record.cells[Side(column, side)]


def test_deltas_are_against_the_own_baseline_and_bold_is_best_of_the_group(quick, score):
    score(quick, "contrast_form", {"base_r50": [30.0], "asymmetric_r50": [31.26], "pne_r50": [32.5], "base_r101": [40]})
    table = printed(quick, "contrast_form")
    assert cell(table, "base_r50").delta is None
    assert cell(table, "asymmetric_r50").delta == pytest.approx(1.26)
    assert cell(table, "pne_r50").delta == pytest.approx(2.5)
    bold = {record.key for record in table.records if cell(table, record.key).bold}
    # The only measured row of the other group has nothing to be better than.
    assert bold == {"pne_r50"}
    assert cell(table, "pne_r101").kind is CellKind.MISSING


@pytest.mark.parametrize(
    ("base", "pne", "delta", "note"),
    [
        ((30, 35), (32, 37), 2.0, None),
        ((30, 35, 40), (32, None, 42), 2.0, "Difference over seeds 0, 2 alone, which row and baseline have in common."),
        ((30,), (32, 37), 2.0, "Difference over seed 0 alone, which row and baseline have in common."),
        ((30, 35), (None, None, 42), None, "No difference: the row has seed 2, its baseline seeds 0, 1."),
        ((), (32, 37), None, NO_BASELINE),
    ],
)
def test_a_delta_names_its_seeds(three, score, base, pne, delta, note):
    score(three, "contrast_form", {"base_r50": base, "pne_r50": pne})
    found = cell(printed(three, "contrast_form"), "pne_r50")
    assert found.delta == (delta if delta is None else pytest.approx(delta))
    assert [text for text in found.notes if "ifference" in text] == ([] if note is None else [note])


def test_bold_needs_the_same_seeds_in_the_whole_group(three, score):
    score(three, "contrast_form", {"base_r50": (30, 30), "asymmetric_r50": (31, 31), "pne_r50": (29, None, 40)})
    score(three, "contrast_form", dict.fromkeys(("base_r101", "pne_r101"), (33, None, 35)))
    table = printed(three, "contrast_form")
    bold = {record.key for record in table.records if cell(table, record.key).bold}
    assert bold == {"base_r101", "pne_r101"}  # equally good; the seeds of the other group differ
    told = {record.key for record in table.records if UNFAIR_BEST in cell(table, record.key).notes}
    assert told == {"pne_r50"}


def test_seeds_give_mean_deviation_and_paired_delta(three, score):
    score(three, "contrast_form", {"base_r50": (30, 32, 40), "pne_r50": (31, 34, None)})
    table = printed(three, "contrast_form")
    found = cell(table, "pne_r50")
    assert (found.value, found.seeds) == (32.5, 2)
    assert found.spread == pytest.approx(4.5**0.5)
    assert found.delta == pytest.approx(1.5)  # over the seeds that both have
    assert found.notes[0] == "n = 2 of 3 seeds. Seed 2: not run yet."
    assert any("n = 3 seeds" in remark for remark in table.remarks)
    assert not any("n = 1" in remark for remark in table.remarks)


def test_stars_follow_holm_over_all_differences_of_the_table(three, score):
    """Four differences over three seeds, paired; their smallest p value is multiplied by four."""
    base = np.array([30.0, 32, 40])
    shifts = {"base": (0, 0, 0), "asymmetric": (1, 2, 1.6), "pne": (2, 2.1, 2.05)}
    for depth in ("r50", "r101"):
        score(three, "contrast_form", {f"{row}_{depth}": base + shift for row, shift in shifts.items()})
    table = printed(three, "contrast_form")
    rows = [f"{row}_{depth}" for row in ("pne", "asymmetric") for depth in ("r50", "r101")]
    raw = [ttest_1samp(shifts[row.partition("_")[0]], 0).pvalue for row in rows]
    assert max(raw) < 0.05 < 2 * max(raw)  # alone each would be starred
    found = [cell(table, row) for row in rows]
    assert [one.star for one in found] == [True, True, False, False]
    assert [one.delta_p for one in found] == pytest.approx(holm(raw))
    assert not cell(table, "base_r50").star
    assert STARS in table.remarks
    assert {"miou_measured_delta_p"} < set(table.numbers.columns)
    markdown, latex = (render(table, suffix, quoted_italic=True) for suffix in ("md", "tex"))
    page = table_page("t", table, three)
    for text, deltas in (
        (markdown, ("(+2.0)***", "(+1.5) ")),
        (latex, ("(+2.0)}*", "(+1.5) ")),
        (page, ("(+2.0)*<", "(+1.5)<")),
    ):
        for delta in deltas:
            assert text.count(delta) == 2, delta


def test_what_is_missing_or_damaged_is_a_dash_that_says_why(quick, finish):
    failed, unscored, damaged, copied, copy = (
        run_of(quick, "cityscapes", row) for row in ("encnet", "deeplabv3", "hrnet", "ocrnet", "ocrnet_pne")
    )
    write_progress(failed, state="failed", iteration=40, iterations=100, error="loss_contrast is nan")
    for run in (unscored, damaged, copied):
        finish(run)
    (unscored.directory / "multi_scale_flip.json").unlink()
    (unscored.directory / "multi_scale_flip.log").write_text("error: final.pth: not a whole checkpoint\n")
    (damaged.directory / "multi_scale_flip.json").write_text('{"run": ')
    shutil.copytree(copied.directory, copy.directory)
    table = printed(quick, "cityscapes")
    for row, note in (
        ("encnet", r"Failed at iteration 40: loss\_contrast is nan"),
        ("deeplabv3", "Trained, but the evaluation failed: final.pth: not a whole checkpoint"),
        ("hrnet", r"multi\_scale\_flip.json"),
        ("ocrnet_pne", r"train.json: "),
    ):
        found = cell(table, row, "val")
        assert found.kind is CellKind.MISSING
        assert note in found.notes[0]


def test_a_run_on_several_devices_says_so(quick, finish):
    finish(run_of(quick, "contrast_form", "base_r50"))
    finish(run_of(quick, "contrast_form", "base_r101"), world_size=2, micro_batch=4)
    assert "2 processes of 4 images" in cell(printed(quick, "contrast_form"), "base_r101").notes[0]


def test_an_evaluation_of_other_weights_is_marked(quick, finish):
    run = run_of(quick, "contrast_form", "base_r50")
    finish(run, weights_sha256="f" * 64)
    assert "Outdated" in cell(printed(quick, "contrast_form"), "base_r50").notes[0]


def test_a_part_of_the_data_says_so(tmp_path, in_repository, finish):
    paper = load_track("paper", results=tmp_path, tables=["positive_weights"])
    for complete, notes, caption in ((True, (), "Measured on Cityscapes."), (False, (PARTIAL,), "are not comparable.")):
        for row in ("without", "logit", "softmax"):
            finish(run_of(paper, "positive_weights", row), dataset_complete=complete or row != "logit")
        track, frame = read_for_comparison(paper)
        table = print_measured(track.tables["positive_weights"], track, collect_values(track, frame))
        assert table.caption.endswith(caption)
        assert [cell(table, row).notes for row in ("without", "logit", "softmax")] == [(), notes, ()]


def test_the_table_says_that_runs_trained_in_mixed_precision(quick, finish):
    run = run_of(quick, "contrast_form", "base_r50")
    finish(run)
    frame = collect_runs(quick.runs.values())
    assert not any("bfloat16" in remark for remark in printed(quick, "contrast_form").remarks)
    frame["precision"] = "bf16"
    table = print_measured(quick.tables["contrast_form"], quick, collect_values(quick, frame))
    assert "Trained in mixed precision (bfloat16)." in table.remarks


def test_studies_print_intervals_and_gradients_relative_to_a_row(finish, in_repository, tmp_path):
    track = load_track("quick", results=tmp_path, seeds=(0, 1, 2), tables=["controls"])
    for row, values in (("pne", (0.1, 0.2, 0.4)), ("pne_double", (0.1, 0.2, 0.5)), ("weight_0", (0.1, 0.2, 0.4))):
        for seed, norm in enumerate(values):
            finish(run_of(track, "controls", row, seed), miou=20.0 + seed, final_statistics={"gradient_norm": norm})
    finish(run_of(track, "controls", "base"), miou=19.0, peak_memory_mib=1234.4)
    table = printed(track, "controls")
    assert cell(table, "pne", "gradient").value == 1
    assert cell(table, "pne_double", "gradient").value == pytest.approx((2 + 2 + 2.5) / 3)  # of the weighted loss
    assert cell(table, "weight_0", "gradient").value == 0
    assert cell(table, "base", "gradient").kind is CellKind.EMPTY
    assert cell(table, "detached", "gradient").notes == ("Not run yet.",)
    assert cell(table, "base", "memory").value == 1234.4
    half = 4.302652729911275 / np.sqrt(3)  # of Student's t with two degrees of freedom
    assert cell(table, "pne").interval == pytest.approx((21 - half, 21 + half))
    assert "| PNE | 21.0 [18.5, 23.5]" in render(table, "md", quoted_italic=True)
    assert INTERVALS in table.remarks


def test_the_settings_table_configures_what_the_paper_prints(tmp_path, in_repository):
    """Other recipes are named; that the numbers are read from configs is tested where they are read."""
    table = printed(load_track("paper", results=tmp_path), "settings")
    for record in table.records:
        for column in ("cityscapes", "coco_stuff", "ade20k"):
            printed_value = float(record.cells[Side(column, "published")].text.replace(",", ""))
            assert record.cells[Side(column, "configured")].value == printed_value
    assert "upernet" in cell(table, "learning_rate", "coco_stuff", "configured").notes[0]


def test_external_scores_are_compared_with_each_other(tmp_path, in_repository):
    paper = load_track("paper", results=tmp_path)
    run = run_of(paper, "cityscapes", "deeplabv3_pne")
    url = "https://example.org/results?id=1_2"
    scores = [
        ExternalScore(run=run.run, miou=79.5, date="2026-01-31", url=url),
        ExternalScore(table="cityscapes", row="deeplabv3", miou=78.0, date="2026-01-30", url=url),
    ]
    table = printed(paper, "cityscapes", scores)
    found = cell(table, "deeplabv3_pne", "test", "external")
    assert (found.kind, found.value, found.delta, found.bold) == (CellKind.EXTERNAL, 79.5, 1.5, True)


def test_the_command_writes_three_files_a_table_and_a_document(tmp_path, options, quick, finish, capsys):
    finish(run_of(quick, "hyperparameters", "alpha_0_4"), miou=12.3456789)
    assert main([*options, "--table", "hyperparameters"]) == 0
    folder = tmp_path / "quick" / "tables"
    names = [f"hyperparameters.{suffix}" for suffix in ("tex", "csv", "md")]
    assert capsys.readouterr().out.split() == [str(folder / name) for name in (*names, "tables.tex")]
    with (folder / "hyperparameters.csv").open(newline="") as stream:
        rows = {row["row"]: row for row in csv.DictReader(stream)}
    assert float(rows["alpha_0_4"]["miou_measured"]) == 12.3456789
    assert rows["alpha_0_6"]["miou_measured_kind"] == "missing"
    assert "12.3" in (folder / "hyperparameters.md").read_text()


OWN = """
table: own
question: Does it help?
dataset: cityscapes
model: deeplabv3_r50
columns: {loss: {title: Loss, kind: label}, miou: {title: mIoU, kind: metric, metric: miou}}
rows:
  base: {label: Base}
  mine: {label: Mine, baseline: base, contrast: {use: pne, temperature: 0.35}}
"""


@pytest.mark.parametrize(
    ("track", "options", "of_the_paper", "own"),
    [
        ("quick", [], r" in place of COCO-Stuff for \d+ iterations: published values are not.*", " for 100 iterations"),
        ("paper", ["--iterations", "20"], " for 20 iterations: published values are not.*", " for 20 iterations"),
        ("paper", [], "", ""),
    ],
)
def test_captions_say_what_was_really_measured(in_repository, tmp_path, track, options, of_the_paper, own):
    """The paper's own data at full length is comparable; other data and shortened runs are not."""
    folder = tmp_path / "experiments"
    shutil.copytree(in_repository / "experiments", folder)
    (folder / "tables" / "own.yaml").write_text(OWN, encoding="utf-8")
    tables = ["--table", "coco_stuff", "--table", "own"]
    assert main(["--track", track, "--results", str(tmp_path), "--experiments", str(folder), *tables, *options]) == 0
    for name, start, length in (("coco_stuff", ".*", of_the_paper), ("own", r"Does it help\?", own)):
        line = (tmp_path / track / "tables" / f"{name}.md").read_text().splitlines()[0]
        assert re.fullmatch(rf"\*\*{start} Measured on [A-Z][-\w() ]+?{length}\.\*\*", line), line


def test_wrong_names_are_one_clear_error(options, capsys):
    assert main([*options, "--table", "hyperparameter"]) == 2
    assert "did you mean hyperparameters?" in capsys.readouterr().err
    assert main([*options, "--track", "camvid", "--table", "ade20k"]) == 2
    assert "not offered" in capsys.readouterr().err


@pytest.mark.parametrize("published", [False, True])
def test_the_document_compiles(published, tmp_path, options, finish, compile_latex):
    track = load_track("quick", results=tmp_path, seeds=[0, 1])
    for index, run in enumerate(track.runs.values()):
        if index % 3 == 0:
            finish(run, device="50% of a_{weird} ~device^ #1 & <co> \\ $5 “quoted” 漢")
        if index % 3 == 1:
            error = "No space left on device: '/data_1/x' [Errno 28] {} % & # ~ ^ \\"
            write_progress(run, state="failed", error=error)
    assert main([*options, "--seeds", "0", "1", *["--published"] * published]) == 0
    compile_latex(tmp_path / ("published" if published else "quick") / "tables")
