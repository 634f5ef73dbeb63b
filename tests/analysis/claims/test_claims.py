"""Claims: what the declared checks compute, the verdicts on printed numbers, and those on measured ones."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from analysis.claims import Difference, Lead, Ratio, Spread, load_claims
from analysis.claims.__main__ import main
from analysis.claims.verdicts import Judge, combine, judge
from analysis.results import collect_runs
from analysis.statistics import Interval
from analysis.tables.values import ExternalScore, collect_values
from pne.errors import UserError
from pne.spec import load_track
from pne.spec.catalogue import read_catalogue


@pytest.fixture
def tables(repository: Path):
    return read_catalogue(repository / "experiments").tables


@pytest.fixture
def claims(repository: Path, tables):
    return load_claims(repository / "experiments" / "claims.yaml", tables)


def judge_of(track, tables, scores=()) -> Judge:
    return Judge(track, tables, collect_values(track, collect_runs(track.runs.values()), scores))


def finish_row(track, benchmark_module, table: str, row: str, skill: float, seed: int = 0, **changes) -> None:
    run = track.runs[track.tables[table].rows[row].runs[seed]]
    benchmark_module.make_up_results(run, np.random.default_rng([seed, len(row)]), skill=skill, images=30, classes=5)


@pytest.mark.parametrize(
    ("bounds", "interval", "verdict"),
    [
        ({"minimum": 0}, (1, 0.5, 1.5), "held"),
        ({"minimum": 0}, (-1, -1.5, -0.5), "not held"),
        ({"minimum": 0}, (0.2, -0.5, 0.9), "undecided"),
        ({"minimum": 0}, (0, 0, 0), "not held"),
        ({"minimum": 2.8}, (2.8, 2.8, 2.8), "held"),
        ({"minimum": 2.8}, (1.7, 1.7, 1.7), "not held"),
        ({"maximum": 0}, (-1, -2, -0.1), "held"),
        ({"maximum": 2}, (1, 0.5, 2.5), "undecided"),
        ({"minimum": 1, "maximum": 2}, (1.5, 1.2, 1.8), "held"),
        ({"minimum": 1, "maximum": 2}, (3, 2.5, 3.5), "not held"),
        ({"minimum": 1, "maximum": 2}, (1.5, 0.5, 2.5), "undecided"),
    ],
)
def test_the_whole_interval_decides(bounds, interval, verdict):
    check = Difference(kind="difference", table="t", row="a", minus="b", **bounds)
    assert judge(check, Interval(*interval)) == verdict


def test_a_claim_holds_if_all_checks_do_and_fails_if_one_does():
    assert combine(["held", "held"]) == "held"
    assert combine(["held", "undecided"]) == "undecided"
    assert combine(["undecided", "not measured", "not held"]) == "not held"
    assert combine(["held", "not measured"]) == "not measured"


def test_quantities():
    a, b, c = (np.array([value]) for value in (3.0, 2.0, 5.0))
    common = {"table": "t", "minimum": 0}
    assert Difference(kind="difference", row="a", minus="b", **common).quantity([a, b]).tolist() == [1]
    assert Ratio(kind="ratio", row="a", over="b", **common).quantity([a, b]).tolist() == [1.5]
    assert Spread(kind="spread", group="g", **common).quantity([a, b, c]).tolist() == [3]
    assert Lead(kind="lead", row="a", **common).quantity([a, b, c]).tolist() == [-2]


def test_the_paper_against_itself(claims, tables, quick):
    """Verdicts on printed numbers: they need no run, and these are the findings about the paper."""
    found = {
        key: combine(outcome.published_verdict for outcome in judge_of(quick, tables).outcomes(claim))
        for key, claim in claims.items()
    }
    contradicted = {key for key, verdict in found.items() if verdict == "not held"}
    assert contradicted == {
        "at_least_2_8_over_asymmetric",
        "form_alone_gains_2_8",
        "insensitive_to_temperature",
        "negligible_cost",
        "baseline_as_strong_as_the_zoo",
    }
    assert {verdict for key, verdict in found.items() if key not in contradicted} == {"held"}


def test_printed_quantities(claims, tables, quick):
    outcomes = {key: judge_of(quick, tables).outcomes(claim) for key, claim in claims.items()}
    assert [o.published for o in outcomes["at_least_2_8_over_asymmetric"]] == [2.8, 1.7]
    assert [o.published for o in outcomes["form_alone_gains"]] == [1.3, 1.3]
    assert [o.published for o in outcomes["single_scale_equals_multi_scale"]] == [0, 0]
    assert outcomes["insensitive_to_temperature"][0].published == 76.1
    assert [round(o.published, 2) for o in outcomes["negligible_cost"]] == [1.27, 1.12, 1.18]


def test_every_cited_label_is_in_the_paper(claims, shared):
    source = (shared / "paper" / "paper.tex").read_text(encoding="utf-8")
    for claim in claims.values():
        for label in claim.paper:
            assert rf"\label{{{label}}}" in source, label


def test_measured_verdicts_follow_the_results(claims, tables, quick, benchmark_module):
    for row, skill in (("base_r50", 0.5), ("asymmetric_r50", 0.6), ("base_r101", 0.5), ("asymmetric_r101", 0.4)):
        finish_row(quick, benchmark_module, "contrast_form", row, skill)
    outcomes = judge_of(quick, tables).outcomes(claims["any_contrast_helps"])
    assert [outcome.verdict for outcome in outcomes] == ["held", "not held"]
    assert outcomes[0].interval.low < outcomes[0].measured < outcomes[0].interval.high
    assert [outcome.seeds for outcome in outcomes] == [1, 1]
    # The other row of this claim is not there; its reason is.
    missing = judge_of(quick, tables).outcomes(claims["better_than_asymmetric"])[0]
    assert missing.verdict == "not measured"
    assert "Not run yet." in missing.remarks


def test_the_estimate_is_the_difference_of_the_tables(claims, tables, quick, benchmark_module):
    for row, skill in (("base_r50", 0.5), ("asymmetric_r50", 0.6)):
        finish_row(quick, benchmark_module, "contrast_form", row, skill)
    frame = collect_runs(quick.runs.values()).set_index("run")["miou"].groupby(level=0).first()
    rows = quick.tables["contrast_form"].rows
    expected = frame[rows["asymmetric_r50"].runs[0]] - frame[rows["base_r50"].runs[0]]
    found = judge_of(quick, tables).outcomes(claims["any_contrast_helps"])[0].measured
    assert found == pytest.approx(expected, abs=1e-9)


def test_sizes_are_compared_on_the_papers_data_alone(claims, tables, quick, benchmark_module, tmp_path):
    paper = load_track("paper", results=tmp_path)
    for track in (quick, paper):
        for row, skill in (("pne", 0.7), ("asymmetric", 0.5), ("pne_ias_cn", 0.7), ("asymmetric_ias_cn", 0.5)):
            finish_row(track, benchmark_module, "construction", row, skill)
    verdicts = {
        track.name: [o.verdict for o in judge_of(track, tables).outcomes(claims["form_alone_gains_2_8"])]
        for track in (quick, paper)
    }
    assert verdicts == {"quick": ["not comparable"] * 2, "paper": ["held"] * 2}
    signs = judge_of(quick, tables).outcomes(claims["form_alone_gains"])
    assert [outcome.verdict for outcome in signs] == ["held", "held"]


def test_a_track_without_a_table_says_so(claims, tables, tmp_path, in_repository):
    camvid = load_track("camvid", results=tmp_path)
    outcome = judge_of(camvid, tables).outcomes(claims["gains_on_ade20k"])[0]
    assert outcome.verdict == "not measured"
    assert "camvid" in outcome.remarks[0]


def test_a_lost_confusion_file_is_a_remark(claims, tables, quick, benchmark_module):
    for row in ("base_r50", "asymmetric_r50"):
        finish_row(quick, benchmark_module, "contrast_form", row, 0.5)
    run = quick.runs[quick.tables["contrast_form"].rows["base_r50"].runs[0]]
    (run.directory / "single_scale.confusion.npz").unlink()
    outcome = judge_of(quick, tables).outcomes(claims["any_contrast_helps"])[0]
    assert outcome.verdict == "not measured"
    assert "no readable confusion counts" in outcome.remarks[-1]


def test_seeds_are_paired(claims, tables, tmp_path, in_repository, benchmark_module):
    track = load_track("quick", results=tmp_path, seeds=[0, 1, 2])
    for seed in (0, 1):
        finish_row(track, benchmark_module, "contrast_form", "base_r50", 0.5, seed)
    for seed in (1, 2):
        finish_row(track, benchmark_module, "contrast_form", "asymmetric_r50", 0.6, seed)
    outcome = judge_of(track, tables).outcomes(claims["any_contrast_helps"])[0]
    assert (outcome.seeds, outcome.verdict) == (1, "held")


def finish_weights(track, finish, row: str, values: list[float]) -> None:
    """Give the runs of a row made-up standard deviations of their per-positive weights."""
    for run, value in zip(track.tables["positive_weights"].rows[row].runs.values(), values, strict=True):
        finish(track.runs[run], final_statistics={"weight_std": value})


def test_one_number_without_an_interval_decides_nothing(claims, tables, quick, finish):
    finish_weights(quick, finish, "softmax", [0.1])
    finish_weights(quick, finish, "logit", [2.4])
    outcome = judge_of(quick, tables).outcomes(claims["softmax_steadies_weights"])[0]
    assert outcome.measured == pytest.approx(-2.3)
    assert (outcome.interval, outcome.verdict, outcome.reason) == (None, "undecided", "one seed, no interval")
    assert outcome.published_verdict == "held"  # a printed number is exact


@pytest.mark.parametrize(
    ("softmax", "logit", "verdict"),
    [([0.1, 0.12, 0.11], [2.4, 2.5, 2.3], "held"), ([0.1, 1.5, 2.9], [2.4, 1.0, 2.3], "undecided")],
)
def test_an_interval_over_seeds_is_judged(claims, tables, tmp_path, in_repository, finish, softmax, logit, verdict):
    track = load_track("quick", results=tmp_path, seeds=[0, 1, 2])
    finish_weights(track, finish, "softmax", softmax)
    finish_weights(track, finish, "logit", logit)
    outcome = judge_of(track, tables).outcomes(claims["softmax_steadies_weights"])[0]
    assert (outcome.seeds, outcome.verdict, outcome.reason) == (3, verdict, "")
    assert outcome.interval.low < outcome.measured < outcome.interval.high


def test_single_scores_of_a_server_and_single_times_are_undecided(claims, tables, tmp_path, in_repository, finish):
    paper = load_track("paper", results=tmp_path)
    for row, time in (("deeplabv3", 1.0), ("deeplabv3_pne", 1.01)):
        finish(paper.runs[paper.tables["cityscapes"].rows[row].runs[0]], time_s=time)
    scores = [
        ExternalScore(
            track="paper",
            table="cityscapes",
            row=row,
            url="https://example.org/1",
            date="2026-01-01",
            miou=miou,
        )
        for row, miou in (("deeplabv3", 78.0), ("deeplabv3_pne", 80.0))
    ]
    found = judge_of(paper, tables, scores)
    for claim, measured in (("negligible_cost", 1.01), ("gains_on_cityscapes_test", 2.0)):
        outcome = found.outcomes(claims[claim])[0]
        assert outcome.measured == pytest.approx(measured)
        assert (outcome.verdict, outcome.reason) == ("undecided", "one seed, no interval")


def test_the_command_names_the_reason(quick, finish, tmp_path):
    finish_weights(quick, finish, "softmax", [0.1])
    finish_weights(quick, finish, "logit", [2.4])
    assert main(["--track", "quick", "--results", str(tmp_path)]) == 0
    folder = tmp_path / "quick" / "claims"
    check = json.loads((folder / "claims.json").read_text())["claims"]["softmax_steadies_weights"]["checks"][0]
    assert (check["verdict"], check["reason"], check["low"]) == ("undecided", "one seed, no interval", None)
    row = next(
        row for row in csv.DictReader((folder / "claims.csv").open()) if row["claim"] == "softmax_steadies_weights"
    )
    assert (row["verdict"], row["reason"], row["low"]) == ("undecided", "one seed, no interval", "")
    text = (folder / "claims.md").read_text()
    assert "−2.3, n = 1 | undecided (one seed, no interval) |" in text
    assert "**undecided**: the interval contains the bound, or there is none (one seed, no interval)" in text


def test_the_command_writes_the_same_verdicts_thrice(quick, benchmark_module, tmp_path, capsys):
    finish_row(quick, benchmark_module, "contrast_form", "base_r50", 0.5)
    finish_row(quick, benchmark_module, "contrast_form", "asymmetric_r50", 0.6)
    assert main(["--track", "quick", "--results", str(tmp_path)]) == 0
    folder = tmp_path / "quick" / "claims"
    names = ("claims.md", "claims.csv", "claims.json")
    assert capsys.readouterr().out.split() == [str(folder / name) for name in names]
    content = json.loads((folder / "claims.json").read_text())
    with (folder / "claims.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == sum(len(claim["checks"]) for claim in content["claims"].values())
    first = content["claims"]["any_contrast_helps"]["checks"][0]
    row = next(row for row in rows if (row["claim"], row["check"]) == ("any_contrast_helps", "0"))
    assert (row["verdict"], first["verdict"]) == ("held", "held")
    assert float(row["measured"]) == first["measured"]
    text = (folder / "claims.md").read_text()
    assert "`table1`" in text
    for claim in content["claims"].values():
        assert claim["statement"] in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"row": "pne_r5"},
            r"claims\.x\.checks\.0\.row: no row 'pne_r5' in table contrast_form; did you mean pne_r50\?",
        ),
        ({"table": "contrast"}, r"checks\.0\.table: no table 'contrast'; did you mean"),
        ({"column": "val"}, r"checks\.0\.column: no column 'val' in table contrast_form"),
        ({"minimum": None}, r"a check needs a minimum, a maximum or both"),
        ({"kind": "sum"}, r"claims\.x\.checks\.0: .*sum"),
        ({"colour": "red"}, r"colour: unknown key"),
    ],
)
def test_wrong_claims_are_one_clear_error(tmp_path, tables, change, message):
    check = {"kind": "difference", "table": "contrast_form", "row": "pne_r50", "minus": "base_r50", "minimum": 0}
    claim = {"statement": "It helps.", "paper": ["table1"], "checks": [check | change]}
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": {"x": claim}}))
    with pytest.raises(UserError, match=message) as error:
        load_claims(path, tables)
    assert str(error.value).startswith(f"{path}: claims.x")
