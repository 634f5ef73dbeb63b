"""Claims: what a check may say and what it computes, and verdicts on measured numbers; printed ones are golden."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from samples import run_of

from analysis.claims import Claim, load_claims, parse
from analysis.claims.verdicts import FEW_BLOCKS, Judge, Outcome
from analysis.results import collect_runs
from analysis.tables.layout import print_measured
from analysis.tables.values import ExternalScore, collect_values
from analysis.uncertainty import image_interval, leave_out, miou, read_counts
from pne.errors import UserError
from pne.spec import ResolvedTrack, load_track
from pne.spec.catalogue import read_catalogue

PNE, BASE, ASYMMETRIC = (f"miou(contrast_form.{row}_r50)" for row in ("pne", "base", "asymmetric"))
LITERATURE = "miou(coco_stuff.literature)"


@pytest.fixture(scope="module")
def tables(repository: Path):
    return read_catalogue(repository / "experiments").tables


@pytest.fixture(scope="module")
def claims(repository: Path, tables):
    return load_claims(repository / "experiments" / "claims.yaml", tables)


def refused(path: Path, tables, message: str, **change: object) -> str:
    """Return what the reader says of a file whose one claim has a mistake."""
    claim = {"statement": "It helps.", "paper": ["table1"], "checks": [f"{PNE} > {BASE}"], **change}
    path.write_text(yaml.safe_dump({"claims": {"x": claim}}))
    with pytest.raises(UserError, match=message) as error:
        load_claims(path, tables)
    return str(error.value)


def outcomes(track: ResolvedTrack, tables, claim: Claim, scores=()) -> list[Outcome]:
    return Judge(track, tables, collect_values(track, collect_runs(track.runs.values()), scores)).outcomes(claim)


def judged(track: ResolvedTrack, tables, *checks: str) -> list[Outcome]:
    return outcomes(track, tables, Claim(statement="It is so.", paper=["table1"], checks=list(checks)))


# What a check may say.


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("miou(contrast_form.pne_r5) > 0", r"no row 'pne_r5' in table contrast_form; did you mean pne_r50\?"),
        ("miou(contrast.pne_r50) > 0", r"no table 'contrast'; did you mean contrast_form\?"),
        ("val(contrast_form.pne_r50) > 0", r"no column 'val' in table contrast_form; allowed: .*miou"),
        ("tightness(embedding.pne) > 0", r"no column 'tightness' in table embedding; allowed: alignment"),
        (f"{PNE} >", "is no expression .*; allowed: numbers, "),
        (PNE, "is no comparison; allowed: numbers, "),
        (f"{PNE} == {BASE}", "is no comparison; allowed: .* > < >= <="),
        ("2 > 1", "expected cells on one side or on both, or between two bounds"),
        (f"0 < {PNE} < {BASE}", "expected cells on one side or on both, or between two bounds"),
        (f"1 <= {PNE} >= 2", "expected a smallest and a largest value"),
        (f"{PNE} - {BASE} >= 0", "a bound of 0 is written < or >"),
        (f"{PNE} - {BASE} > 1", "any other <= or >="),
        (f"abs({PNE}) > 0", r"'abs\(.*\)' is not allowed; allowed: numbers, "),
        (f"{PNE} ** 2 > 0", r"\*\* 2' is not allowed; allowed: numbers, "),
        ("__import__('os') > 0", "is not allowed; allowed: numbers, "),
        ("max() > 0", r"'max\(\)' is not allowed; allowed: numbers, "),
        (f"lead({PNE}, {BASE}, default=2) > 0", "is not allowed; allowed: numbers, "),
        (f"spread({PNE}, {BASE}) + 1 <= 2", r"'spread\(.*\)' is not allowed; .* as a whole side"),
        ("miou(hyperparameters.alpha) > 0", "is a group of 8 rows; expected one row"),
        (f"{PNE} > max({BASE}, {ASYMMETRIC})", r"that are not trained, got miou\(contrast_form.base_r50\); compare t"),
        (f"min({LITERATURE}, {PNE}) >= 1", r"that are not trained, got miou\(contrast_form.pne_r50\); compare t"),
        (f"lead({PNE}, {PNE}) > 0", "compare two cells of trained rows or more"),
        (f"lead(miou(coco_stuff.ocrnet), {LITERATURE}) > 0", "compare two cells of trained rows or more"),
    ],
)
def test_wrong_checks_are_told_with_file_claim_and_what_is_allowed(tmp_path, tables, check, message):
    path = tmp_path / "claims.yaml"
    told = refused(path, tables, message, checks=[f"{PNE} > {BASE}", check])
    assert told.startswith(f"{path}: claims.x.checks.1: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "colour: unknown key"),
        ({"checks": []}, "has checks, or says under not_tested why it has none"),
        ({"not_tested": "Too dear."}, "has checks, or says under not_tested why it has none"),
    ],
)
def test_wrong_claims_are_one_clear_error(tmp_path, tables, change, message):
    path = tmp_path / "claims.yaml"
    assert refused(path, tables, message, **change).startswith(f"{path}: claims.x")


@pytest.mark.parametrize(
    ("check", "bounds", "value"),
    [
        (f"{PNE} > {BASE}", (0, None), 3),
        (f"{BASE} < {PNE}", (None, 0), -3),
        (f"2.8 <= {PNE} - {BASE}", (2.8, None), 3),
        (f"-1 <= {PNE} - {BASE} <= 1.5", (-1, 1.5), 3),
        (f"1.5 >= {PNE} - {BASE} >= -1", (-1, 1.5), 3),
        (f"2 * {PNE} / {BASE} <= 1.05", (None, 1.05), 5),
        (f"{PNE} - {BASE} > {ASYMMETRIC} + 1", (0, None), -5),
        (f"lead({PNE}, {BASE}, {ASYMMETRIC}) > 0", (0, None), -2),
        (f"lead({ASYMMETRIC}, {PNE}, {ASYMMETRIC}) > 0", (0, None), 2),  # nothing is compared with itself
        (f"spread({PNE}, {BASE}, {ASYMMETRIC}) <= 2", (None, 2), 5),
        (f"{PNE} > max({LITERATURE})", (0, None), 5 - 40.1),
        (f"{PNE} > min({LITERATURE})", (0, None), 5 - 39.6),
    ],
)
def test_what_a_check_computes(tables, check, bounds, value):
    found = parse(check, tables)
    given = {PNE: 5, BASE: 2, ASYMMETRIC: 7}
    printed = {place: tables[place.table].rows[place.row].published[place.column].value for place in found.places}
    values = {place: np.array([given.get(str(place), number)] * 3, float) for place, number in printed.items()}
    assert found.bounds == bounds
    assert found.estimate(values).value == pytest.approx(value)


# The paper's own words.


def test_every_cited_label_and_quoted_line_is_in_the_paper(claims, shared):
    source = (shared / "paper" / "paper.tex").read_text(encoding="utf-8")
    words = " ".join(source.split())
    for key, claim in claims.items():
        for label in claim.paper:
            assert rf"\label{{{label}}}" in source or rf"section{{{label}}}" in source, label
        assert claim.quote is not None or "Not claimed by the paper" in claim.note, key
        assert " ".join((claim.quote or "").split()) in words, key


# Measured verdicts.


def test_seeds_decide(three, tables, score):
    score(
        three, "contrast_form", {"base_r50": (30, 31, 35), "pne_r50": (32, 33.1, 36.9), "asymmetric_r50": (29, 33, 34)}
    )
    score(three, "contrast_form", {"base_r101": (40, 41, None), "pne_r101": (50, 51, 52)})
    pne, fails, asymmetric, few, missing, size = judged(
        three,
        tables,
        f"{PNE} > {BASE}",
        f"{PNE} < {BASE}",
        f"{ASYMMETRIC} > {BASE}",
        "miou(contrast_form.pne_r101) > miou(contrast_form.base_r101)",
        "miou(contrast_form.asymmetric_r101) > miou(contrast_form.base_r101)",
        f"{PNE} - {BASE} >= 1.5",
    )
    assert [one.verdict for one in (pne, fails, asymmetric)] == ["held", "not held", "undetermined"]
    assert pne.measured == pytest.approx((2, 2 - 4.302653 * 0.1 / 3**0.5, 2 + 4.302653 * 0.1 / 3**0.5))
    assert (few.verdict, few.seeds, few.measured.estimate) == ("not enough seeds", 2, 10)
    assert np.isnan(few.measured.low)
    assert (missing.verdict, missing.measured, missing.seeds) == ("not measured", None, 0)
    assert "Not run yet." in missing.remarks
    assert size.verdict == "not comparable"  # what a stand-in gains says nothing about the paper's size
    # A refutation pays for the number of checks; a check that holds does not, since all of them must.
    (alone,) = judged(three, tables, f"{PNE} < {BASE}")
    assert fails.p_fails == pytest.approx(6 * alone.p_fails)
    assert pne.p_holds == pytest.approx(alone.p_fails)


def test_only_seeds_that_all_cells_have_are_compared(three, tables, score):
    score(three, "contrast_form", {"base_r50": (30, 31, None), "asymmetric_r50": (None, 33, 50)})
    (found,) = judged(three, tables, f"{ASYMMETRIC} > {BASE}")
    assert (found.seeds, found.measured.estimate, found.verdict) == (1, 2, "not enough seeds")


def test_lead_and_spread_of_measured_rows(three, claims, tables, score):
    rows = [key for key in three.tables["hyperparameters"].rows if key.startswith("temperature")]
    values = {"temperature_10": (30, 31, 35.1), "temperature_1": (33, 34, 38)}
    score(three, "hyperparameters", dict.fromkeys(rows, (30, 31, 35)) | values)
    (best,) = outcomes(three, tables, claims["best_temperature"])
    assert best.measured.estimate == pytest.approx(3 - 0.1 / 3)
    assert (best.verdict, best.seeds) == ("held", 3)
    apart, *_ = judged(three, tables, "spread(miou(hyperparameters.temperature)) > 0")
    assert (apart.measured.estimate, apart.verdict) == (pytest.approx(3), "held")


def test_the_estimate_is_the_difference_of_the_tables(three, tables, score):
    score(three, "contrast_form", {"base_r50": (30, 31, None), "asymmetric_r50": (30.5, 33, 50)})
    values = collect_values(three, collect_runs(three.runs.values()))
    records = {record.key: record for record in print_measured(three.tables["contrast_form"], three, values).records}
    deltas = [cell.delta for side, cell in records["asymmetric_r50"].cells.items() if side.side == "measured"]
    (found,) = judged(three, tables, f"{ASYMMETRIC} > {BASE}")
    assert deltas == [found.measured.estimate]


def test_sizes_and_quoted_rows_are_compared_on_the_papers_data_alone(tables, score, tmp_path, in_repository):
    checks = (
        "miou(coco_stuff.ocrnet_pne) - miou(coco_stuff.ocrnet) >= 2",
        f"miou(coco_stuff.ocrnet_pne) > max({LITERATURE})",
    )
    for track, verdicts in (("quick", ["not comparable"] * 2), ("paper", ["held", "not held"])):
        loaded = load_track(track, results=tmp_path, seeds=[0, 1, 2])
        score(loaded, "coco_stuff", {"ocrnet": (30, 31, 30.4), "ocrnet_pne": (33, 34, 33.5)})
        found = judged(loaded, tables, *checks)
        assert [one.verdict for one in found] == verdicts
        assert found[1].measured.estimate == pytest.approx(33.5 - 40.1)


def test_what_other_images_would_give_stands_beside_the_verdict(three, tables, finish):
    runs = [[run_of(three, "contrast_form", row, seed) for seed in range(3)] for row in ("pne_r50", "base_r50")]
    for run in (*runs[0], *runs[1]):
        finish(run)
    paths = [[run.directory / "single_scale.confusion.npz" for run in side] for side in runs]
    weights = leave_out(np.arange(6))
    ours, base = (np.mean([miou(read_counts(path), weights) for path in side], 0) for side in paths)
    (found,) = judged(three, tables, f"{PNE} > {BASE}")
    assert found.images == pytest.approx(image_interval(ours - base))
    assert found.images.estimate == pytest.approx(found.measured.estimate)
    assert FEW_BLOCKS in found.remarks  # six images
    (best,) = judged(three, tables, f"lead({PNE}, {BASE}) > 0")
    assert best.images == pytest.approx(found.images)
    paths[0][1].unlink()
    (lost,) = judged(three, tables, f"{PNE} > {BASE}")
    assert (lost.images, lost.verdict) == (None, found.verdict)  # seeds decide without the counts
    assert "no readable confusion counts" in lost.remarks[-1]


def test_a_track_without_a_table_says_so(claims, tables, tmp_path, in_repository):
    camvid = load_track("camvid", results=tmp_path)
    (outcome,) = outcomes(camvid, tables, claims["gains_on_ade20k"])
    assert outcome.verdict == "not measured"
    assert "camvid" in outcome.remarks[0]


@pytest.mark.parametrize(
    ("softmax", "logit", "verdict"),
    [
        ([0.1, 0.12, 0.11], [2.4, 2.5, 2.3], "held"),
        ([0.1, 1.5, 2.9], [2.4, 1.0, 2.3], "undetermined"),
        ([0.1], [2.4], "not enough seeds"),
    ],
)
def test_what_trainings_and_servers_say_is_judged_over_seeds_too(
    claims, tables, tmp_path, in_repository, finish, softmax, logit, verdict
):
    track = load_track("paper", results=tmp_path, seeds=range(len(logit)))
    for row, values in (("softmax", softmax), ("logit", logit)):
        for seed, value in enumerate(values):
            finish(run_of(track, "positive_weights", row, seed), final_statistics={"weight_std": value})
    (found,) = outcomes(track, tables, claims["softmax_steadies_weights"])
    assert (found.verdict, found.published_verdict) == (verdict, "held")  # a printed number is exact
    assert found.measured.estimate == pytest.approx(np.mean(softmax) - np.mean(logit))
    common = {"track": "paper", "table": "cityscapes", "url": "https://example.org/1", "date": "2026-01-01"}
    scores = [
        ExternalScore(row=row, miou=miou, **common) for row, miou in {"deeplabv3": 78, "deeplabv3_pne": 80}.items()
    ]
    first, *_ = outcomes(track, tables, claims["gains_on_cityscapes_test"], scores)
    assert (first.measured.estimate, first.verdict) == (2, "not enough seeds")
