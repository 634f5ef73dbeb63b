"""Table embedding: metrics against loops that read like their definitions, what is marked, and what is printed."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from samples import made_up_features, write_features
from scipy import stats

from analysis.figures import features_file
from analysis.figures.tsne import unit_rows
from analysis.latex_text import to_plain
from analysis.report import main as write_pages
from analysis.tables.__main__ import main
from analysis.tables.embedding import (
    CELLS,
    COLUMNS,
    METRICS,
    OVERALL,
    class_cosines,
    compared_with,
    embedding_values,
    focus_classes,
    knn_purity,
    measure,
    measure_rows,
    print_embedding,
    probe_hits,
    summarise,
    uniformity,
)
from analysis.uncertainty import holm, image_blocks, leave_out
from pne.errors import UserError
from pne.spec import ResolvedTrack, load_track

NAMES = ("road", "tree", "building")


class Sample(NamedTuple):
    """Pixels of one run: embeddings, and the class and image of each."""

    embeddings: np.ndarray
    labels: np.ndarray
    images: np.ndarray

    @property
    def unit(self) -> np.ndarray:
        return unit_rows(self.embeddings)


def random_sample(pixels: int = 24, seed: int = 0) -> Sample:
    rng = np.random.default_rng(seed)
    labels = np.arange(pixels) % 3
    return Sample(rng.normal(size=(pixels, 5)) + np.eye(5)[labels], labels, rng.permutation(np.arange(pixels) % 6))


def clusters(noise: float, pixels: int = 60) -> Sample:
    rng = np.random.default_rng(1)
    labels = np.arange(pixels) % 3
    return Sample(np.eye(3)[labels] + noise * rng.normal(size=(pixels, 3)), labels, np.arange(pixels) // 6)


def loops(sample: Sample, kept: np.ndarray) -> tuple[dict, float]:
    """Mean cosines by pair of classes and the uniformity of the pixels that are kept, pair by pair."""
    unit = sample.unit
    cosines: dict = {}
    potentials = []
    for i, j in itertools.permutations(np.flatnonzero(kept), 2):
        cosine = sum(a * b for a, b in zip(unit[i], unit[j], strict=True))
        cosines.setdefault((sample.labels[i], sample.labels[j]), []).append(cosine)
        potentials.append(math.exp(-2 * sum((a - b) ** 2 for a, b in zip(unit[i], unit[j], strict=True))))
    return {pair: np.mean(values) for pair, values in cosines.items()}, math.log(np.mean(potentials))


@pytest.mark.parametrize("left_out", [None, 0, 5])
def test_cosines_and_uniformity_equal_the_loops_over_pairs(left_out):
    sample = random_sample()
    weights = leave_out(sample.images)
    line = 0 if left_out is None else 1 + left_out
    expected, expected_uniformity = loops(sample, sample.images != left_out)
    classes, cosines = class_cosines(sample.unit, sample.labels, weights)
    for (one, other), value in expected.items():
        assert cosines[line, classes.index(one), classes.index(other)] == pytest.approx(value)
    assert uniformity(sample.unit, weights)[line] == pytest.approx(expected_uniformity)


def test_perfect_clusters_reach_every_metrics_end():
    sample = clusters(noise=0)
    result = measure(*sample, NAMES, ["tree"], leave_out(sample.images))
    at = {metric: values[0] for (scope, metric), values in result.items() if scope == OVERALL}
    ends = {"alignment": 0, "intra_cosine": 1, "inter_cosine": 0, "silhouette": 1}
    assert {metric: at[metric] for metric in ends} == pytest.approx(ends)
    assert at["knn_purity"] == at["probe_accuracy"] == 100
    assert np.isnan(at["distance_ratio"])  # nothing is that close within a class


def test_equal_embeddings_are_not_uniform_at_all():
    assert uniformity(np.ones((5, 1)), np.ones((1, 5)))[0] == pytest.approx(0)


def test_between_to_within_is_the_ratio_of_mean_squared_distances():
    sample = Sample(np.array([[1.0, 0], [0.6, 0.8], [-1, 0], [0, -1]]), np.array([0, 0, 1, 1]), np.arange(4))
    distance = ((sample.unit[:, None] - sample.unit[None]) ** 2).sum(2)
    between = distance[:2, 2:].mean()
    ratio = (between / distance[0, 1] + between / distance[2, 3]) / 2
    found = measure(*sample, NAMES, [], np.ones((1, 4)))
    assert found[OVERALL, "distance_ratio"][0] == pytest.approx(ratio)


def test_more_noise_is_worse_on_every_metric():
    little, much = (measure(*clusters(noise), NAMES, [], np.ones((1, 60))) for noise in (0.1, 1.0))
    assert much[OVERALL, "alignment"] > little[OVERALL, "alignment"]
    for metric in ("intra_cosine", "distance_ratio", "silhouette", "knn_purity"):
        assert much[OVERALL, metric] < little[OVERALL, metric]


def test_neighbours_and_probe_never_look_at_the_own_image():
    # Every image has a direction of its own, with two classes in it: pixels of other images tell nothing.
    images = np.repeat(np.arange(8), 4)
    labels = images % 2  # nearest neighbours, all of the same image, would be pure
    embeddings = np.eye(8)[images]
    sample = Sample(embeddings, labels, images)
    within = knn_purity(sample.unit, labels, np.arange(len(images)), k=3)
    across = knn_purity(sample.unit, labels, images, k=3)
    assert (within == 1).all()
    assert across.mean() < 1
    assert probe_hits(embeddings, labels, images).mean() < 1


def test_focus_reports_classes_and_pairs_and_leaves_out_what_is_absent():
    sample = random_sample()
    result = measure(*sample, (*NAMES, "pole"), ["tree", "building", "pole"], np.ones((1, 24)))
    scopes = {scope for scope, _ in result}
    assert scopes == {OVERALL, "tree", "building", "tree, building"}
    _, cosines = class_cosines(sample.unit, sample.labels, np.ones((1, 24)))
    assert result["tree, building", "inter_cosine"][0] == pytest.approx(cosines[0, 1, 2])


def test_seeds_decide_and_other_images_stand_beside_them():
    images = np.arange(90) % 6
    drawn = [random_sample(90, seed)._replace(images=images) for seed in range(6)]
    runs = [measure(*sample, NAMES, ["tree"], leave_out(images)) for sample in drawn]
    base, ours = runs[:3], runs[3:]
    table = summarise(ours, base).set_index(["scope", "metric"])
    assert {(OVERALL, metric) for metric in METRICS} < set(table.index)
    for key, row in table.iterrows():
        values, others = (np.array([run[key][0] for run in group]) for group in (ours, base))
        mean = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        paired = stats.ttest_rel(values, others)
        ends = paired.confidence_interval(0.95)
        assert row[["value", "low", "high"]].tolist() == pytest.approx([values.mean(), mean.low, mean.high])
        expected = [values.mean() - others.mean(), ends.low, ends.high, paired.pvalue]
        assert row[["delta", "delta_low", "delta_high", "delta_p"]].tolist() == pytest.approx(expected)
        assert [float(value) for value in row["by_seed"].split()] == values.tolist()
    # Six images are left out one at a time; the mean of the seeds then scatters this much.
    cosine = np.mean([run[OVERALL, "inter_cosine"] for run in ours], 0)
    half = stats.t.isf(0.025, 5) * np.sqrt(5 / 6 * ((cosine[1:] - cosine[1:].mean()) ** 2).sum())
    found = table.loc[OVERALL, "inter_cosine"]
    assert [found["image_low"], found["image_high"]] == pytest.approx([cosine[0] - half, cosine[0] + half])


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_have_an_interval_over_images_alone(seeds):
    sample = random_sample(90)
    run = measure(*sample, NAMES, [], leave_out(sample.images))
    table = summarise([run] * seeds, [run] * seeds)
    assert (table["delta"] == 0).all()
    assert table[["low", "high", "delta_low", "delta_high", "delta_p"]].isna().all().all()
    assert (table["image_low"] <= table["value"]).all()
    assert summarise([run])[["delta", "delta_p"]].isna().all().all()


def test_one_image_leaves_neighbours_and_probe_out():
    sample = Sample(np.eye(4), np.array([0, 0, 1, 1]), np.zeros(4, int))
    table = summarise([measure(*sample, NAMES, [], leave_out(sample.images))])
    assert not set(table["metric"]) & {"knn_purity", "probe_accuracy"}
    assert "intra_cosine" in set(table["metric"])


LABELS = {"base": "Cross entropy", "asymmetric": "Asymmetric", "pne": "PNE"}
LOWER_IS_BETTER = {"alignment", "inter_cosine"}
BASELINES = {"base": None, "asymmetric": "base", "pne": "base"}


def numbers_of(*deltas_p: float, metric: str = "alignment", seeds: int = 3) -> pd.DataFrame:
    """One metric is 0.5, 0.6 and 0.7 in the three rows; in the projection there is no baseline to compare with."""
    frame = pd.DataFrame({"row": list(LABELS), "value": [0.5, 0.6, 0.7], "delta_p": [np.nan, *(deltas_p or (1, 1))]})
    frame["baseline"] = ["", "base", "base"]
    projection = frame[1:].assign(space="projection", delta_p=np.nan, baseline="")
    frame = pd.concat([frame.assign(space="penultimate"), projection], ignore_index=True)
    for side, width in (("low", -0.1), ("high", 0.1), ("image_low", -0.2), ("image_high", 0.2)):
        frame[side] = frame["value"] + width
    frame = frame.assign(scope="all", metric=metric, seeds=seeds)
    return frame.reindex(columns=list(COLUMNS), fill_value=1)


def test_a_star_stands_where_a_difference_is_certain(quick):
    table = print_embedding(quick.tables["embedding"], quick, numbers_of(0.05, 0.051))
    (title, *lines), (other_title, *others) = table.blocks
    assert [title[0].text, other_title[0].text] == ["penultimate layer, all classes", "projection, all classes"]
    stars = {line[0].text: line[1].star for line in lines}
    assert stars == {"Cross entropy": False, "Asymmetric": True, "PNE": False}
    assert not any(line[1].star for line in others)


def test_p_values_are_after_holm_over_the_block():
    features = {key: [made_up_features(key, seed=10 * n + s) for s in range(3)] for n, key in enumerate(LABELS)}
    for one in features["pne"]:
        one.penultimate += 6 * np.eye(4)[one.label].astype(np.float32)
    numbers = measure_rows(features, BASELINES)
    overall = numbers[numbers["scope"] == "all"].set_index(["row", "metric"]).sort_index()
    by_seed = {key: [float(value) for value in text.split()] for key, text in overall["by_seed"].items()}
    compared = overall.drop("base")
    raw = [stats.ttest_rel(by_seed[key], by_seed["base", key[1]]).pvalue for key in compared.index]
    assert compared["delta_p"].tolist() == pytest.approx(holm(raw))
    assert (compared["delta_p"] <= 0.05).any()


@pytest.mark.parametrize("metric", METRICS)
def test_bold_is_the_best_in_the_direction_of_the_metric(quick, metric):
    (_, *lines), *_ = print_embedding(quick.tables["embedding"], quick, numbers_of(metric=metric)).blocks
    column = 1 + list(METRICS).index(metric)
    best = "Cross entropy" if metric in LOWER_IS_BETTER else "PNE"
    assert [line[0].text for line in lines if line[column].bold] == ([] if metric == "uniformity" else [best])


@pytest.mark.parametrize(("seeds", "ends"), [(3, (0.4, 0.6)), (2, (0.3, 0.7))])
def test_brackets_are_over_seeds_where_there_are_enough(quick, seeds, ends):
    (_, line, *_), *_ = print_embedding(quick.tables["embedding"], quick, numbers_of(seeds=seeds)).blocks
    assert line[1].interval == pytest.approx(ends)


def test_differences_are_those_to_the_declared_baseline_and_classes_are_counted():
    features = {key: [made_up_features(key, seed=n, projection=key != "base")] for n, key in enumerate(LABELS)}
    numbers = measure_rows(features, {**BASELINES, "pne": "asymmetric"})
    cells = numbers[numbers["scope"] == "all"].set_index(["space", "row", "metric"])
    compared = [
        ("penultimate", "asymmetric", "base"),
        *((s, "pne", "asymmetric") for s in ("penultimate", "projection")),
    ]
    for (space, row, baseline), metric in itertools.product(compared, METRICS):
        found = cells.loc[space, row, metric]
        assert found["baseline"] == baseline
        assert found["delta"] == pytest.approx(found["value"] - cells.loc[space, baseline, metric]["value"])
    no_baseline = numbers.query("row == 'base' or space == 'projection' and row == 'asymmetric'")
    assert (no_baseline["baseline"] == "").all()
    assert no_baseline[["delta", "delta_low", "delta_high", "delta_p"]].isna().all().all()
    assert "Cross entropy or Asymmetric" in compared_with(numbers, LABELS)
    assert tuple(numbers.columns) == COLUMNS
    assert set(numbers["smallest_class"]) == set(numbers["largest_class"]) == {9}
    assert set(numbers["pixels"]) == {36}


def test_rows_with_other_numbers_of_seeds_are_refused():
    one, two = made_up_features("a"), made_up_features("b", seed=1)
    with pytest.raises(UserError, match=r"as many seeds in every row, got \{'base': 1, 'pne': 2\}"):
        measure_rows({"base": [one], "pne": [two, one]}, BASELINES)


def test_frames_that_follow_each_other_are_left_out_together():
    features = made_up_features()
    features.names = np.array([f"clip_{number:04d}" for number in range(6)])
    widths = {}
    for dataset in ("camvid", "ade20k"):
        numbers = measure_rows({"base": [features]}, BASELINES, dataset).set_index(["scope", "metric"])
        widths[dataset] = (numbers["image_high"] - numbers["image_low"])["all", "alignment"]
    assert image_blocks(features.names.tolist(), "camvid").max() == 0
    assert np.isnan(widths["camvid"])  # one block of frames cannot tell
    assert widths["ade20k"] > 0


@pytest.fixture
def make(tmp_path, in_repository) -> Callable[..., tuple[ResolvedTrack, Path, list[str]]]:
    """Return a function that makes the table of made-up features: its track, its folder and the command's options."""

    def make_table(*seeds: int) -> tuple[ResolvedTrack, Path, list[str]]:
        track = load_track("quick", results=tmp_path, seeds=seeds)
        write_features(track)
        options = ["--track", "quick", "--results", str(tmp_path), "--seeds", ",".join(map(str, seeds))]
        assert main(["--table", "embedding", *options]) == 0
        return track, tmp_path / "quick" / "tables", options

    return make_table


def test_claims_read_the_numbers_of_each_seed(make):
    track, folder, _ = make(0, 1, 2)
    values = embedding_values(track, folder)
    assert set(values["column"]) == set(CELLS)
    lines = values[(values["row"] == "pne") & (values["column"] == "inter_cosine_vegetation_building")]
    printed = pd.read_csv(folder / "embedding.csv").set_index(["row", "space", "scope", "metric"])
    pair = printed.loc["pne", "penultimate", "tree, building", "inter_cosine"]
    assert lines["seed"].tolist() == [0, 1, 2]
    assert lines["value"].mean() == pytest.approx(pair["value"])
    lost = values[(values["column"] == "alignment_vegetation") & (values["row"] == "base")]
    assert lost["value"].notna().all()  # CamVid's and our own name of vegetation is tree


def test_one_seed_says_so_and_compiles_and_the_page_has_what_the_table_has(tmp_path, make, compile_latex):
    track, folder, options = make(0)
    assert write_pages(["--page", "embedding", *options]) == 0
    numbers = pd.read_csv(folder / "embedding.csv")
    table = print_embedding(track.tables["embedding"], track, numbers)
    page = (tmp_path / "quick" / "report" / "embedding.html").read_text().replace("&#39;", "'")
    assert [text for text in (table.caption, *table.remarks) if to_plain(text) not in page] == []
    assert "how much another seed would differ is not known" in page
    assert numbers["low"].isna().all()
    overall = numbers.query("metric == 'alignment' and row == 'pne' and scope == 'all'")
    assert all(f"{value:.3f}" in page for value in overall["value"])
    compile_latex(folder)


def test_runs_that_sampled_other_pixels_cannot_be_paired_and_missing_features_are_named(quick, options, capsys):
    arguments = ["--table", "embedding", *options]
    assert main(arguments) == 2
    assert "no such file; `python -m pne.extract` makes it" in capsys.readouterr().err
    write_features(quick)
    run = next(iter(quick.tables["embedding"].rows["pne"].runs.values()))
    features = made_up_features(run, projection=True)
    features.image[:] += 1
    features.write(features_file(quick.runs[run]))
    assert main(arguments) == 2
    assert "sampled different pixels" in capsys.readouterr().err


def test_the_classes_the_paper_names_are_found_under_each_data_sets_names():
    assert focus_classes(["road", "vegetation", "pole", "building"]) == ["vegetation", "building", "pole"]
    assert focus_classes(["wall"]) == []


def test_the_printed_table_stays_the_same(tmp_path, in_repository, golden, command):
    track = load_track("quick", results=tmp_path, seeds=(0, 1, 2))
    for number, row in enumerate(track.tables["embedding"].rows.values()):
        for seed, run in row.runs.items():
            features = made_up_features(run, seed=10 * number + seed, projection=row.key != "base")
            features.write(features_file(track.runs[run]))
    command("analysis.tables", "--table", "embedding", "--track", "quick", "--seeds", "0,1,2", "--results", tmp_path)
    paths = (tmp_path / "quick" / "tables").glob("embedding.*")
    golden("tables/embedding", {path.name: path.read_text() for path in paths})
