"""Table embedding: what stars compare with, which way bold looks, and one description in every output."""

import numpy as np
import pandas as pd
import pytest
from samples import made_up_features

from analysis.embedding import METRICS
from analysis.figures.embedding import COLUMNS, describe, measure_rows, write_embedding_table
from analysis.figures.embedding_table import compared_with, render_rows
from analysis.latex_text import to_plain
from analysis.report import embedding_page
from pne.errors import UserError
from pne.resolve import load_track

LABELS = {"base": "Cross entropy", "asymmetric": "Asymmetric", "pne": "PNE"}
LOWER_IS_BETTER = {"alignment", "uniformity", "inter_cosine"}
BASELINES = {"base": None, "asymmetric": "base", "pne": "base"}


def numbers_of(deltas: dict[str, tuple[float, float, float]], metric: str = "alignment") -> pd.DataFrame:
    """One metric in the penultimate layer and, without the baseline, in the projection: value and ends of the delta."""
    lines = []
    for space in ("penultimate", "projection"):
        for row, (value, low, high) in deltas.items():
            if (space, row) == ("projection", "base"):
                continue
            compared = space == "penultimate" and row != "base"
            ends = (low, high) if compared else (np.nan, np.nan)
            line = {"row": row, "space": space, "baseline": "base" if compared else "", "scope": "all"}
            line |= {"metric": metric, "value": value, "low": value - 0.1, "high": value + 0.1}
            lines.append(line | {"delta_low": ends[0], "delta_high": ends[1]})
    return pd.DataFrame(lines)


@pytest.mark.parametrize(
    ("low", "high", "star"), [(0.1, 0.3, True), (-0.3, -0.1, True), (-0.1, 0.2, False), (0.0, 0.2, False)]
)
def test_a_star_stands_where_the_interval_of_the_difference_leaves_0_out(low, high, star):
    numbers = numbers_of({"base": (0.5, 0, 0), "asymmetric": (0.6, low, high), "pne": (0.7, -1, 1)})
    for latex in (False, True):
        blocks = dict(render_rows(numbers, LABELS, latex=latex))
        cells = {line[0]: line[1] for line in blocks["penultimate layer, all classes"]}
        assert ("0.600*" in cells["Asymmetric"] or cells["Asymmetric"].endswith("$*")) == star
        assert "*" not in cells["PNE"]
        other = [line[1].replace("**", "") for line in blocks["projection, all classes"]]
        assert not any("*" in cell for cell in other)


@pytest.mark.parametrize("metric", METRICS)
def test_bold_is_the_best_in_the_direction_of_the_metric(metric):
    numbers = numbers_of({"base": (0.5, 0, 0), "asymmetric": (0.6, -1, 1), "pne": (0.7, -1, 1)}, metric)
    (_, lines), *_ = render_rows(numbers, LABELS, latex=False)
    column = 1 + list(METRICS).index(metric)
    best = "Cross entropy" if metric in LOWER_IS_BETTER else "PNE"
    assert [line[0] for line in lines if "**" in line[column]] == [best]


@pytest.fixture(scope="module")
def measured() -> pd.DataFrame:
    features = {
        key: [made_up_features(key, seed=number, projection=key != "base")] for number, key in enumerate(LABELS)
    }
    return measure_rows(features, BASELINES, resamples=60)


def test_differences_are_those_to_the_declared_baseline(measured):
    overall = measured[measured["scope"] == "all"].set_index(["space", "row", "metric"])
    for row in ("asymmetric", "pne"):
        for metric in METRICS:
            cell = overall.loc["penultimate", row, metric]
            assert cell["baseline"] == "base"
            assert cell["delta"] == pytest.approx(cell["value"] - overall.loc["penultimate", "base", metric]["value"])
    no_baseline = measured[(measured["space"] == "projection") | (measured["row"] == "base")]
    assert (no_baseline["baseline"] == "").all()
    assert no_baseline[["delta", "delta_low", "delta_high"]].isna().all().all()
    assert tuple(column for column in measured.columns if column in COLUMNS) == tuple(measured.columns)


def test_another_baseline_is_followed():
    features = {key: [made_up_features(key, seed=n, projection=True)] for n, key in enumerate(LABELS)}
    numbers = measure_rows(features, {**BASELINES, "pne": "asymmetric"}, resamples=20)
    cells = numbers[(numbers["scope"] == "all") & (numbers["metric"] == "alignment")].set_index(["space", "row"])
    for space in ("penultimate", "projection"):
        difference = cells.loc[(space, "pne"), "value"] - cells.loc[(space, "asymmetric"), "value"]
        assert cells.loc[(space, "pne"), "delta"] == pytest.approx(difference)
    assert "Cross entropy or Asymmetric" in compared_with(numbers, LABELS)


def test_the_note_says_what_stars_compare_with(measured):
    note = compared_with(measured, LABELS)
    assert "difference to its baseline, Cross entropy," in note
    assert note.endswith("No baseline has a projection, so that nothing is marked there.")


def test_classes_are_counted(measured):
    assert set(measured["smallest_class"]) == set(measured["largest_class"]) == {9}
    assert set(measured["pixels"]) == {36}


def test_rows_with_other_numbers_of_seeds_are_refused():
    one, two = made_up_features("a"), made_up_features("b", seed=1)
    with pytest.raises(UserError, match=r"as many seeds in every row, got \{'base': 1, 'pne': 2\}"):
        measure_rows({"base": [one], "pne": [two, one]}, BASELINES, resamples=5)


def test_seeds_that_differ_widen_the_intervals():
    features = [made_up_features("a", seed=seed) for seed in (0, 1)]
    width = {}
    for name, parts in {"one": features[:1], "two": features, "same": features[:1] * 2}.items():
        numbers = measure_rows({"base": parts}, BASELINES, resamples=200).set_index(["scope", "metric"])
        width[name] = (numbers["high"] - numbers["low"])["all", "alignment"]
    assert width["two"] > 1.5 * width["one"]
    assert width["same"] == pytest.approx(width["one"])


@pytest.mark.parametrize("seeds", [1, 2])
def test_every_output_has_the_same_caption_and_notes(tmp_path, in_repository, seeds):
    track = load_track("quick", results=tmp_path, seeds=range(seeds))
    table = track.tables["embedding"]
    for row in table.rows.values():
        for seed, run in row.runs.items():
            path = tmp_path / "quick" / "features" / f"{run}.npz"
            made_up_features(run, seed=seed, projection=row.key != "base").write(path)
    paths = {path.suffix: path for path in write_embedding_table(track)}
    numbers = pd.read_csv(paths[".csv"])
    caption, notes = describe(table, track, numbers)
    page = embedding_page(table, track, numbers)
    assert page.caption == to_plain(caption)
    assert [text for _, text in page.notes] == [to_plain(note) for note in notes]
    markdown, latex = (paths[suffix].read_text() for suffix in (".md", ".tex"))
    for text in (page.caption, *(text for _, text in page.notes)):
        assert text in markdown.replace("\\*", "*")
    assert "SyntheticStreet" in caption
    assert "track quick" in notes[-1]
    assert "not the paper's data" in notes[-1]
    assert notes[-1] in latex
    assert "36 pixels of 6 test images, 9 to 9 of a class" in latex
    one = "how much another seed would differ is not known"
    assert (one in markdown) == (one in latex) == (seeds == 1)
    assert ("over n = 2 seeds" in markdown) == (seeds == 2)


def test_the_printed_table_stays_the_same(tmp_path, in_repository, golden, command):
    track = load_track("quick", results=tmp_path, seeds=(0, 1))
    for number, row in enumerate(track.tables["embedding"].rows.values()):
        for seed, run in row.runs.items():
            features = made_up_features(run, seed=10 * number + seed, projection=row.key != "base")
            features.write(tmp_path / "quick" / "features" / f"{run}.npz")
    command("analysis.figures", "embedding", "--track", "quick", "--seeds", "0,1", "--results", tmp_path)
    golden("tables/embedding", {path.name: path.read_text() for path in (tmp_path / "quick" / "tables").iterdir()})
