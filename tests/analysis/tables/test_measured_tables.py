"""Measured tables: values, deltas, bold face, dashes and footnotes from real result files."""

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from analysis.report import table_page
from analysis.results import collect_runs, read_for_comparison
from analysis.tables.__main__ import main
from analysis.tables.cells import NO_BASELINE, UNFAIR_BEST, CellKind, Side
from analysis.tables.layout import INTERVALS, STARS, PrintedTable, print_measured, render
from analysis.tables.values import BFLOAT16, MIXED, OTHER_DATA, PARTIAL, STALE, ExternalScore, collect_values
from analysis.uncertainty import holm
from pne.engine.provenance import code_sha256
from pne.results import EvaluationResult, read_result, write_result
from pne.spec import load_track


def printed(track, name: str, scores=()) -> PrintedTable:
    frame = collect_runs(track.runs.values(), code_sha256)
    return print_measured(track.tables[name], track, collect_values(track, frame, scores))


def cell(table: PrintedTable, row: str, column: str = "miou", side: str = "measured"):
    record = next(record for record in table.records if record.key == row)
    return record.cells[Side(column, side)]


def run_of(track, table: str, row: str, seed: int = 0):
    return track.runs[track.tables[table].rows[row].runs[seed]]


def test_an_empty_track_prints_dashes_with_a_footnote_and_the_published_side(quick):
    table = printed(quick, "contrast_form")
    assert cell(table, "base_r50").kind is CellKind.MISSING
    assert cell(table, "base_r50").notes == ("Not run yet.",)
    assert cell(table, "pne_r50", side="published").value == 80.3
    assert "SyntheticStreet" in table.caption
    assert "not comparable" in table.caption


def test_deltas_are_against_the_own_baseline_and_bold_is_best_of_the_group(quick, finish):
    for row, miou in (("base_r50", 30.0), ("asymmetric_r50", 31.26), ("pne_r50", 32.5), ("base_r101", 40.0)):
        finish(run_of(quick, "contrast_form", row), miou=miou)
    table = printed(quick, "contrast_form")
    assert cell(table, "base_r50").delta is None
    assert cell(table, "asymmetric_r50").delta == pytest.approx(1.26)
    assert cell(table, "pne_r50").delta == pytest.approx(2.5)
    bold = {record.key for record in table.records if cell(table, record.key).bold}
    # The only measured row of the other group has nothing to be better than.
    assert bold == {"pne_r50"}
    assert cell(table, "pne_r101").kind is CellKind.MISSING


def test_a_delta_needs_its_baseline(quick, finish):
    finish(run_of(quick, "contrast_form", "pne_r50"), miou=32.5)
    found = cell(printed(quick, "contrast_form"), "pne_r50")
    assert (found.delta, found.notes) == (None, (NO_BASELINE,))
    finish(run_of(quick, "contrast_form", "base_r50"), miou=30)
    found = cell(printed(quick, "contrast_form"), "pne_r50")
    assert (found.delta, found.notes) == (2.5, ())


@pytest.fixture
def three_seeds(tmp_path, in_repository):
    return load_track("quick", results=tmp_path, seeds=[0, 1, 2])


@pytest.mark.parametrize(
    ("base", "pne", "delta", "note"),
    [
        ((0, 1), (0, 1), 2.0, None),
        ((0, 1, 2), (0, 2), 2.0, "Difference over seeds 0, 2 alone, which row and baseline have in common."),
        ((0,), (0, 1), 2.0, "Difference over seed 0 alone, which row and baseline have in common."),
        ((0, 1), (2,), None, "No difference: the row has seed 2, its baseline seeds 0, 1."),
        ((), (0, 1), None, NO_BASELINE),
    ],
)
def test_a_delta_names_its_seeds(three_seeds, finish, base, pne, delta, note):
    for row, seeds, lead in (("base_r50", base, 0), ("pne_r50", pne, 2)):
        for seed in seeds:
            finish(run_of(three_seeds, "contrast_form", row, seed), miou=30 + 5 * seed + lead)
    found = cell(printed(three_seeds, "contrast_form"), "pne_r50")
    assert found.delta == (delta if delta is None else pytest.approx(delta))
    assert [text for text in found.notes if "ifference" in text] == ([] if note is None else [note])


def test_bold_needs_the_same_seeds_in_the_whole_group(three_seeds, finish):
    values = {"base_r50": {0: 30, 1: 30}, "asymmetric_r50": {0: 31, 1: 31}, "pne_r50": {0: 29, 2: 40}}
    values["base_r101"] = values["pne_r101"] = {0: 33, 2: 35}
    for row, by_seed in values.items():
        for seed, miou in by_seed.items():
            finish(run_of(three_seeds, "contrast_form", row, seed), miou=miou)
    table = printed(three_seeds, "contrast_form")
    bold = {record.key for record in table.records if cell(table, record.key).bold}
    assert bold == {"base_r101", "pne_r101"}  # equally good; the seeds of the other group differ
    told = {record.key for record in table.records if UNFAIR_BEST in cell(table, record.key).notes}
    assert told == {"pne_r50"}


def test_equal_settings_show_one_run_in_every_table(quick, finish):
    finish(run_of(quick, "contrast_form", "pne_r50"), miou=32.5)
    places = [
        ("contrast_form", "pne_r50"),
        ("construction", "pne_ias_cn"),
        ("positive_weights", "softmax"),
        ("hyperparameters", "temperature_1"),
        ("hyperparameters", "alpha_1_3"),
    ]
    assert [cell(printed(quick, table), row).value for table, row in places] == [32.5] * 5


def test_seeds_give_mean_deviation_and_paired_delta(tmp_path, in_repository, finish):
    track = load_track("quick", results=tmp_path, seeds=[0, 1, 2])
    for seed, base, pne in ((0, 30.0, 31.0), (1, 32.0, 34.0), (2, 40.0, None)):
        finish(run_of(track, "contrast_form", "base_r50", seed), miou=base)
        if pne is not None:
            finish(run_of(track, "contrast_form", "pne_r50", seed), miou=pne)
    table = printed(track, "contrast_form")
    found = cell(table, "pne_r50")
    assert (found.value, found.seeds) == (32.5, 2)
    assert found.spread == pytest.approx(4.5**0.5)
    assert found.delta == pytest.approx(1.5)  # over the seeds that both have
    assert found.notes[0] == "n = 2 of 3 seeds. Seed 2: not run yet."
    assert found.notes[1] == "Difference over seeds 0, 1 alone, which row and baseline have in common."
    assert any("n = 3 seeds" in remark for remark in table.remarks)
    assert not any("n = 1" in remark for remark in table.remarks)


def test_stars_follow_holm_over_all_differences_of_the_table(three_seeds, finish):
    """Four differences over three seeds, paired; their smallest p value is multiplied by four."""
    base = np.array([30.0, 32, 40])
    shifts = {"base": (0, 0, 0), "asymmetric": (1, 2, 1.6), "pne": (2, 2.1, 2.05)}
    for depth in ("r50", "r101"):
        for row, shift in shifts.items():
            for seed, miou in enumerate(base + shift):
                finish(run_of(three_seeds, "contrast_form", f"{row}_{depth}", seed), miou=miou)
    table = printed(three_seeds, "contrast_form")
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
    page = table_page("t", table, three_seeds)
    for text, deltas in (
        (markdown, ("(+2.0)***", "(+1.5) ")),
        (latex, ("(+2.0)}*", "(+1.5) ")),
        (page, ("(+2.0)*<", "(+1.5)<")),
    ):
        for delta in deltas:
            assert text.count(delta) == 2, delta


def test_fewer_than_three_common_seeds_are_not_tested(three_seeds, finish):
    for row, values in (("base_r50", (30, 31)), ("pne_r50", (40, 41, 42))):
        for seed, miou in enumerate(values):
            finish(run_of(three_seeds, "contrast_form", row, seed), miou=miou)
    table = printed(three_seeds, "contrast_form")
    found = cell(table, "pne_r50")
    assert (found.delta, found.delta_p, found.star) == (10, None, False)
    assert STARS not in table.remarks


def test_a_failed_run_prints_its_error(quick):
    run = run_of(quick, "contrast_form", "pne_r50")
    run.work_directory.mkdir(parents=True)
    report = {"state": "failed", "iteration": 40, "iterations": 100, "error": "loss_contrast is nan"}
    (run.work_directory / "progress.json").write_text(json.dumps(report))
    found = cell(printed(quick, "contrast_form"), "pne_r50")
    assert found.kind is CellKind.MISSING
    assert found.notes == (r"Failed at iteration 40: loss\_contrast is nan",)


def test_a_failed_evaluation_prints_its_error(quick, finish):
    run = run_of(quick, "cityscapes", "deeplabv3")
    finish(run)
    (run.directory / "multi_scale_flip.json").unlink()
    (run.directory / "multi_scale_flip.log").write_text("error: final.pth: not a whole checkpoint\n")
    found = cell(printed(quick, "cityscapes"), "deeplabv3", "val")
    assert found.kind is CellKind.MISSING
    assert found.notes == ("Trained, but the evaluation failed: final.pth: not a whole checkpoint",)


def test_a_damaged_result_is_a_dash_that_names_the_file(quick, finish):
    run = run_of(quick, "contrast_form", "pne_r50")
    finish(run)
    (run.directory / "single_scale.json").write_text('{"run": ')
    found = cell(printed(quick, "contrast_form"), "pne_r50")
    assert found.kind is CellKind.MISSING
    assert "single\\_scale.json" in found.notes[0]


def test_a_result_of_another_run_is_refused(quick, finish):
    base, pne = (run_of(quick, "contrast_form", row) for row in ("base_r50", "pne_r50"))
    finish(base)
    shutil.copytree(base.directory, pne.directory)
    assert cell(printed(quick, "contrast_form"), "pne_r50").kind is CellKind.MISSING


def test_what_a_reader_must_know_stands_in_footnotes(quick, finish):
    finish(run_of(quick, "contrast_form", "base_r50"))
    finish(run_of(quick, "contrast_form", "asymmetric_r50"), code_sha256="0" * 64)
    finish(run_of(quick, "contrast_form", "pne_r50"), healthy=False, active_fraction=0.43)
    finish(run_of(quick, "contrast_form", "base_r101"), world_size=2, micro_batch=4)
    table = printed(quick, "contrast_form")
    assert cell(table, "base_r50").notes == ()
    assert cell(table, "asymmetric_r50").notes == (STALE,)
    assert "43" in cell(table, "pne_r50").notes[0]
    assert "2 processes of 4 images" in cell(table, "base_r101").notes[0]
    assert any("1 process of 8 images" in remark for remark in table.remarks)


def test_a_training_that_was_resumed_by_other_code_is_stale_and_says_so(quick, finish):
    run = run_of(quick, "contrast_form", "base_r50")
    finish(run, earlier_code_sha256=["0" * 64])
    assert cell(printed(quick, "contrast_form"), "base_r50").notes == (MIXED,)
    assert collect_runs([run], code_sha256)["stale"].all()


def test_an_evaluation_of_other_weights_is_marked(quick, finish):
    run = run_of(quick, "contrast_form", "base_r50")
    finish(run, weights_sha256="f" * 64)
    assert "Outdated" in cell(printed(quick, "contrast_form"), "base_r50").notes[0]


def test_partial_or_other_data_and_bfloat16_say_so(tmp_path, in_repository, finish):
    paper = load_track("paper", results=tmp_path, tables=["positive_weights"])
    runs = [run_of(paper, "positive_weights", row) for row in ("without", "logit", "softmax")]
    for run in runs:
        finish(run, dataset_complete=True)
    track, frame = read_for_comparison(paper)
    table = print_measured(track.tables["positive_weights"], track, collect_values(track, frame))
    assert "not comparable" not in table.caption
    assert all(cell(table, row).notes == () for row in ("without", "logit", "softmax"))

    finish(runs[1], dataset_complete=False, dataset_fingerprint="a few files")
    path = runs[2].directory / "single_scale.json"
    write_result(path, read_result(path, EvaluationResult).model_copy(update={"bfloat16": True}))
    track, frame = read_for_comparison(paper)
    table = print_measured(track.tables["positive_weights"], track, collect_values(track, frame))
    assert table.caption.endswith("published values are not comparable.")
    assert cell(table, "without").notes == ()
    assert cell(table, "logit").notes == (PARTIAL, OTHER_DATA)
    assert cell(table, "softmax").notes == (BFLOAT16,)


def test_the_table_says_that_runs_trained_in_mixed_precision(quick, finish):
    run = run_of(quick, "contrast_form", "base_r50")
    finish(run)
    frame = collect_runs(quick.runs.values())
    assert not any("bfloat16" in remark for remark in printed(quick, "contrast_form").remarks)
    frame["precision"] = "bf16"
    table = print_measured(quick.tables["contrast_form"], quick, collect_values(quick, frame))
    assert "Trained in mixed precision (bfloat16)." in table.remarks


def test_times_of_a_row_and_its_baseline_on_other_devices_say_so(quick, finish):
    finish(run_of(quick, "cityscapes", "deeplabv3"), device="A100")
    finish(run_of(quick, "cityscapes", "deeplabv3_pne"), device="V100")
    finish(run_of(quick, "cityscapes", "hrnet"), device="V100")
    finish(run_of(quick, "cityscapes", "hrnet_pne"), device="V100")
    table = printed(quick, "cityscapes")
    (note,) = cell(table, "deeplabv3_pne", "time").notes
    assert note == "Timed on V100, but the baseline on A100: the two cannot be compared."
    assert cell(table, "hrnet_pne", "time").notes == ()
    assert cell(table, "deeplabv3_pne", "val").notes == ()


def test_time_and_weight_deviation_come_from_training(quick, finish):
    finish(run_of(quick, "cityscapes", "deeplabv3"), time_s=0.25)
    table = printed(quick, "cityscapes")
    assert cell(table, "deeplabv3", "time").value == 0.25
    assert "Training time measured on made up." in table.remarks
    assert any("one seed (n = 1)" in remark for remark in table.remarks)
    finish(run_of(quick, "cityscapes", "deeplabv3"), time_s=0.25, device="cpu: made up")
    remarks = printed(quick, "cityscapes").remarks
    assert any("cpu: made up, which trains several runs at once" in remark for remark in remarks)
    run = run_of(quick, "positive_weights", "logit")
    finish(run, final_statistics={"weight_std": 1.5})
    finish(run_of(quick, "positive_weights", "without"))
    table = printed(quick, "positive_weights")
    assert cell(table, "logit", "weight_std").value == 1.5
    assert cell(table, "without", "weight_std").kind is CellKind.EMPTY  # nothing is weighed there


def test_studies_print_intervals_and_gradients_relative_to_a_row(finish, in_repository, tmp_path):
    track = load_track("quick", results=tmp_path, seeds=(0, 1, 2), tables=["controls"])
    norms = {"pne": (0.1, 0.2, 0.4), "pne_double": (0.1, 0.2, 0.5), "weight_0": (0.1, 0.2, 0.4)}
    for row, values in norms.items():
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


def test_quoted_rows_have_no_measured_side(quick):
    table = printed(quick, "cityscapes")
    assert cell(table, "aaf", "val").kind is CellKind.EMPTY
    assert cell(table, "aaf", "val", "published").kind is CellKind.QUOTED


def test_the_settings_table_reads_the_resolved_configs(quick, tmp_path):
    for track in (quick, load_track("paper", results=tmp_path)):
        table = printed(track, "settings")
        run = next(run for run in track.runs.values() if run.dataset == "ade20k")
        assert cell(table, "iterations", "ade20k", "configured").value == run.iterations
        assert cell(table, "batch_size", "ade20k", "configured").value == run.batch_size
        lr = track.config(run.run).optim_wrapper.optimizer.lr
        assert cell(table, "learning_rate", "ade20k", "configured").value == lr
    # On the paper's track the configured side is what the paper prints, with other recipes named.
    for record in table.records:
        for column in ("cityscapes", "coco_stuff", "ade20k"):
            printed_value = float(record.cells[Side(column, "published")].text.replace(",", ""))
            assert record.cells[Side(column, "configured")].value == printed_value
    assert "upernet" in cell(table, "learning_rate", "coco_stuff", "configured").notes[0]


def test_external_scores_appear_on_comparable_tracks_alone(quick, tmp_path):
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
    assert "2026-01-31" in found.notes[0]
    assert cell(table, "ocrnet", "test", "external").kind is CellKind.MISSING
    assert Side("test", "external") not in printed(quick, "cityscapes").records[0].cells


def test_the_command_writes_three_files_a_table_and_a_document(tmp_path, in_repository, quick, finish, capsys):
    finish(run_of(quick, "hyperparameters", "alpha_0_4"), miou=12.3456789)
    arguments = ["--track", "quick", "--results", str(tmp_path), "--table", "hyperparameters"]
    assert main(arguments) == 0
    folder = tmp_path / "quick" / "tables"
    names = [f"hyperparameters.{suffix}" for suffix in ("tex", "csv", "md")]
    assert capsys.readouterr().out.split() == [str(folder / name) for name in (*names, "tables.tex")]
    with (folder / "hyperparameters.csv").open(newline="") as stream:
        rows = {row["row"]: row for row in csv.DictReader(stream)}
    assert float(rows["alpha_0_4"]["miou_measured"]) == 12.3456789
    assert rows["alpha_0_6"]["miou_measured_kind"] == "missing"
    assert "12.3" in (folder / "hyperparameters.md").read_text()


def test_captions_say_what_was_really_measured(tmp_path, in_repository):
    """The paper's own data at full length is comparable; other data and shortened runs are not."""
    captions = {}
    for track, options in (("quick", []), ("paper", []), ("paper", ["--iterations", "20"])):
        arguments = ["--track", track, "--results", str(tmp_path), "--table", "coco_stuff", *options]
        assert main(arguments) == 0
        lines = (tmp_path / track / "tables" / "coco_stuff.md").read_text().splitlines()
        captions[track, bool(options)] = lines[0]
    assert re.search(r"in place of COCO-Stuff for \d+ iterations: published values are not", captions["quick", False])
    assert captions["paper", False].endswith("Measured on COCO-Stuff 10k.**")
    assert captions["paper", True].endswith("10k for 20 iterations: published values are not comparable.**")


@pytest.mark.parametrize(
    ("track", "options", "length"),
    [("quick", {}, " for 100 iterations"), ("paper", {"iterations": 20}, " for 20 iterations"), ("paper", {}, "")],
)
def test_the_caption_of_an_own_ablation_says_how_long_it_trained(in_repository, tmp_path, track, options, length):
    folder = tmp_path / "experiments"
    shutil.copytree(in_repository / "experiments", folder)
    path = folder / "tables" / "own.yaml"
    path.write_text("table: own\n" + OWN, encoding="utf-8")
    arguments = ["--track", track, "--results", str(tmp_path), "--experiments", str(folder), "--table", "own"]
    assert main(arguments + [text for key, value in options.items() for text in (f"--{key}", str(value))]) == 0
    line = (tmp_path / track / "tables" / "own.md").read_text().splitlines()[0]
    assert re.fullmatch(rf"\*\*Does it help\? Measured on [A-Z][A-Za-z()\s]+?{length}\.\*\*", line), line


OWN = """
question: Does it help?
dataset: cityscapes
model: deeplabv3_r50
columns: {loss: {title: Loss, kind: label}, miou: {title: mIoU, kind: metric, metric: miou}}
rows:
  base: {label: Base}
  mine: {label: Mine, baseline: base, contrast: {use: pne, temperature: 0.35}}
"""


def test_wrong_names_are_one_clear_error(tmp_path, in_repository, capsys):
    assert main(["--track", "quick", "--results", str(tmp_path), "--table", "hyperparameter"]) == 2
    assert "did you mean hyperparameters?" in capsys.readouterr().err
    assert main(["--track", "camvid", "--results", str(tmp_path), "--table", "ade20k"]) == 2
    assert "not offered" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
@pytest.mark.parametrize("published", [False, True])
def test_the_document_compiles(published, tmp_path, in_repository, finish):
    track = load_track("quick", results=tmp_path, seeds=[0, 1])
    for index, run in enumerate(track.runs.values()):
        if index % 3 == 0:
            finish(run, device="50% of a_{weird} ~device^ #1 & <co> \\ $5 “quoted” 漢")
        if index % 3 == 1:
            run.work_directory.mkdir(parents=True)
            error = "No space left on device: '/data_1/x' [Errno 28] {} % & # ~ ^ \\"
            (run.work_directory / "progress.json").write_text(json.dumps({"state": "failed", "error": error}))
    arguments = ["--track", "quick", "--results", str(tmp_path), "--seeds", "0", "1"]
    assert main([*arguments, "--published"] if published else arguments) == 0
    folder = tmp_path / ("published" if published else "quick") / "tables"
    assert compile_latex(folder, "tables.tex").stat().st_size > 10_000
    log = (folder / "tables.log").read_text(errors="replace")
    assert "Overfull" not in log
    assert "undefined" not in log


def compile_latex(folder: Path, name: str) -> Path:
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name]
    for _ in range(2):  # the second pass resolves citations
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
        assert result.returncode == 0, result.stdout[-3000:]
    return (folder / name).with_suffix(".pdf")
