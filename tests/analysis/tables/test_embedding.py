"""Table embedding: metrics against loops that read like their definitions, what is marked, and what is printed."""

import itertools
import math
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from samples import made_up_features, write_features

from analysis.figures import features_file
from analysis.latex_text import to_latex, to_plain
from analysis.report import main as write_pages
from analysis.statistics import widening
from analysis.tables.__main__ import main
from analysis.tables.embedding import (
    COLUMNS,
    METRICS,
    OVERALL,
    Sample,
    average,
    class_cosines,
    compared_with,
    focus_classes,
    image_weights,
    knn_purity,
    measure,
    measure_rows,
    print_embedding,
    probe_hits,
    summarise,
    uniformity,
)
from pne.errors import UserError
from pne.spec import load_track

NAMES = ("road", "tree", "building")


def random_sample(pixels: int = 24, seed: int = 0) -> Sample:
    rng = np.random.default_rng(seed)
    labels = np.arange(pixels) % 3
    return Sample(rng.normal(size=(pixels, 5)) + np.eye(5)[labels], labels, rng.permutation(np.arange(pixels) % 6))


def clusters(noise: float, pixels: int = 60) -> Sample:
    rng = np.random.default_rng(1)
    labels = np.arange(pixels) % 3
    return Sample(np.eye(3)[labels] + noise * rng.normal(size=(pixels, 3)), labels, np.arange(pixels) // 6)


def loops(sample: Sample, drawn: np.ndarray) -> tuple[dict, float]:
    """Mean cosines by pair of classes and the uniformity, pair by pair.

    A pair within an image counts as often as the image was drawn, a pair across two images as often as the product.
    """
    unit = sample.unit
    cosines: dict = {}
    potentials = []
    for i, j in itertools.permutations(range(len(unit)), 2):
        cosine = sum(a * b for a, b in zip(unit[i], unit[j], strict=True))
        for _ in range(int(drawn[i] if sample.images[i] == sample.images[j] else drawn[i] * drawn[j])):
            cosines.setdefault((sample.labels[i], sample.labels[j]), []).append(cosine)
            potentials.append(math.exp(-2 * sum((a - b) ** 2 for a, b in zip(unit[i], unit[j], strict=True))))
    return {pair: np.mean(values) for pair, values in cosines.items()}, math.log(np.mean(potentials))


@pytest.mark.parametrize("resample", [0, 1, 2])
def test_cosines_and_uniformity_equal_the_loops_over_pairs(resample):
    sample = random_sample()
    weights = image_weights(sample.images, resamples=2, seed=3)
    expected, expected_uniformity = loops(sample, weights[resample])
    classes, cosines = class_cosines(sample.unit, sample.labels, sample.images, weights)
    for (one, other), value in expected.items():
        assert cosines[resample, classes.index(one), classes.index(other)] == pytest.approx(value)
    assert uniformity(sample.unit, sample.images, weights)[resample] == pytest.approx(expected_uniformity)


def test_resamples_draw_whole_images_as_many_as_there_are():
    images = np.array([4, 4, 7, 9, 9, 9])
    weights = image_weights(images, resamples=50, seed=0)
    assert (weights[0] == 1).all()
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, [0, 2, 3]].sum(1) == 3).all()
    assert len(np.unique(weights, axis=0)) > 5


def test_perfect_clusters_reach_every_metrics_end():
    sample = clusters(noise=0)
    result = measure(sample, NAMES, ["tree"], image_weights(sample.images, 3, 0))
    at = {metric: values[0] for (scope, metric), values in result.items() if scope == OVERALL}
    assert at["alignment"] == pytest.approx(0)
    assert at["intra_cosine"] == pytest.approx(1)
    assert at["inter_cosine"] == pytest.approx(0)
    assert at["silhouette"] == pytest.approx(1)
    assert at["knn_purity"] == 100
    assert at["probe_accuracy"] == 100


def test_equal_embeddings_are_not_uniform_at_all():
    assert uniformity(np.ones((5, 1)), np.arange(5), np.ones((1, 5)))[0] == pytest.approx(0)


def test_more_noise_is_worse_on_every_metric():
    results = []
    for noise in (0.1, 1.0):
        sample = clusters(noise)
        results.append(measure(sample, NAMES, [], image_weights(sample.images, 0, 0)))
    for metric, sign in {"alignment": 1, "intra_cosine": -1, "silhouette": -1, "knn_purity": -1}.items():
        assert sign * results[1][OVERALL, metric][0] > sign * results[0][OVERALL, metric][0]


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
    result = measure(sample, (*NAMES, "pole"), ["tree", "building", "pole"], image_weights(sample.images, 1, 0))
    scopes = {scope for scope, _ in result}
    assert scopes == {OVERALL, "tree", "building", "tree, building"}
    _, cosines = class_cosines(sample.unit, sample.labels, sample.images, np.ones((1, 24)))
    assert result["tree, building", "inter_cosine"][0] == pytest.approx(cosines[0, 1, 2])


def test_summary_averages_seeds_and_pairs_differences_with_the_baseline():
    weights = image_weights(np.arange(90) % 6, 200, seed=5)
    images = np.arange(90) % 6
    runs = []
    for seed in (0, 1):
        drawn = random_sample(90, seed)
        runs.append(measure(Sample(drawn.embeddings, drawn.labels, images), NAMES, ["tree"], weights))
    table = summarise(average(runs), average(runs)).set_index(["scope", "metric"])
    single = [summarise(run).set_index(["scope", "metric"]) for run in runs]
    for key, row in table.iterrows():
        assert row["value"] == pytest.approx(np.mean([one.loc[key, "value"] for one in single]))
    assert (table["low"] < table["high"]).all()
    means = table.loc[[(OVERALL, "inter_cosine"), (OVERALL, "knn_purity")]]
    assert ((means["low"] <= means["value"]) & (means["value"] <= means["high"])).all()
    assert (table[["delta", "delta_low", "delta_high"]] == 0).all().all()
    against = summarise(runs[1], runs[0]).set_index(["scope", "metric"])
    assert against["delta"].to_numpy() == pytest.approx((single[1]["value"] - single[0]["value"]).to_numpy())
    assert (against["delta_low"] < against["delta_high"]).all()
    assert single[0]["delta"].isna().all()


def test_resamples_scatter_around_the_sample_where_images_look_alike_inside():
    """Pixels of an image share most of their embedding: pairs within images must not gain weight by resampling."""
    random = np.random.default_rng(0)
    images = np.repeat(np.arange(60), 6)
    shared = random.normal(size=(60, 16))[images]
    labels = np.tile([0, 0, 0, 1, 1, 1], 60)
    sample = Sample(shared + 0.3 * random.normal(size=shared.shape), labels, images)
    weights = image_weights(images, 2000, seed=0)
    _, cosines = class_cosines(sample.unit, labels, images, weights)
    for values in (cosines[:, 0, 0], cosines[:, 0, 1], uniformity(sample.unit, images, weights)):
        assert values[1:].mean() == pytest.approx(values[0], abs=0.25 * values[1:].std())
    # With w^2 for pairs within images, resamples would lie beside the sample.
    squared = weights[1:, labels == 0]
    unit = sample.unit[labels == 0]
    total = np.einsum("rd,rd->r", squared @ unit, squared @ unit) - (squared**2).sum(1)
    biased = np.mean(total / (squared.sum(1) ** 2 - (squared**2).sum(1)))
    assert biased - cosines[0, 0, 0] > 5 * abs(cosines[1:, 0, 0].mean() - cosines[0, 0, 0])


def test_seeds_that_differ_widen_the_interval_and_those_that_agree_do_not():
    images = np.arange(90) % 30
    weights = image_weights(images, 400, seed=5)
    drawn = [random_sample(90, seed) for seed in (0, 1, 2)]
    runs = [measure(Sample(one.embeddings, one.labels, images), NAMES, [], weights) for one in drawn]
    key = (OVERALL, "inter_cosine")
    same, different = (average(group)[key][1:] for group in ([runs[0]] * 3, runs))
    np.testing.assert_allclose(same, runs[0][key][1:])
    of_images = np.mean([run[key][1:] for run in runs], axis=0)
    assert different.std() > 1.2 * of_images.std()
    between_seeds = np.var([run[key][1:] for run in runs], axis=0).mean()
    expected = widening(3) ** 2 * between_seeds / 3 + of_images.var()  # draws of seeds and of images are independent
    assert different.var() == pytest.approx(expected, rel=0.2)


def test_one_image_leaves_neighbours_and_probe_out():
    sample = Sample(np.eye(4), np.array([0, 0, 1, 1]), np.zeros(4, int))
    table = summarise(measure(sample, NAMES, [], image_weights(sample.images, 10, 0)))
    assert not set(table["metric"]) & {"knn_purity", "probe_accuracy"}
    assert "intra_cosine" in set(table["metric"])


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
            line |= dict.fromkeys(("seeds", "pixels", "images", "smallest_class", "largest_class"), 1)
            lines.append(line | {"delta_low": ends[0], "delta_high": ends[1]})
    return pd.DataFrame(lines)


@pytest.mark.parametrize(
    ("low", "high", "star"), [(0.1, 0.3, True), (-0.3, -0.1, True), (-0.1, 0.2, False), (0.0, 0.2, False)]
)
def test_a_star_stands_where_the_interval_of_the_difference_leaves_0_out(quick, low, high, star):
    numbers = numbers_of({"base": (0.5, 0, 0), "asymmetric": (0.6, low, high), "pne": (0.7, -1, 1)})
    table = print_embedding(quick.tables["embedding"], quick, numbers)
    (title, *lines), (other_title, *others) = table.blocks
    assert [title[0].text, other_title[0].text] == ["penultimate layer, all classes", "projection, all classes"]
    assert {line[0].text: line[1].star for line in lines} == {"Cross entropy": False, "Asymmetric": star, "PNE": False}
    assert not any(line[1].star for line in others)


@pytest.mark.parametrize("metric", METRICS)
def test_bold_is_the_best_in_the_direction_of_the_metric(quick, metric):
    numbers = numbers_of({"base": (0.5, 0, 0), "asymmetric": (0.6, -1, 1), "pne": (0.7, -1, 1)}, metric)
    (_, *lines), *_ = print_embedding(quick.tables["embedding"], quick, numbers).blocks
    column = 1 + list(METRICS).index(metric)
    best = "Cross entropy" if metric in LOWER_IS_BETTER else "PNE"
    assert [line[0].text for line in lines if line[column].bold] == [best]
    assert {line[column].ends for line in lines} > {("0.500", "0.400", "0.600")} or METRICS[metric].decimals == 1


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


@pytest.mark.parametrize("seeds", ["0", "0,1"])
def test_every_output_has_the_same_rows_caption_and_notes(tmp_path, in_repository, seeds):
    track = load_track("quick", results=tmp_path, seeds=[int(seed) for seed in seeds.split(",")])
    write_features(track)
    options = ["--track", "quick", "--results", str(tmp_path), "--seeds", seeds]
    assert main(["--table", "embedding", *options]) == 0
    assert write_pages(["--page", "embedding", *options]) == 0
    folder = tmp_path / "quick" / "tables"
    numbers = pd.read_csv(folder / "embedding.csv")
    table = print_embedding(track.tables["embedding"], track, numbers)
    markdown, latex = ((folder / f"embedding.{suffix}").read_text() for suffix in ("md", "tex"))
    page = (tmp_path / "quick" / "report" / "embedding.html").read_text().replace("&#39;", "'")
    for text in (table.caption, *table.remarks):
        assert to_plain(text) in markdown.replace("\\*", "*")
        assert to_plain(text) in page
        assert to_latex(text) in latex
    assert "SyntheticStreet" in table.caption
    assert "track quick" in table.remarks[-1]
    assert "not the paper's data" in table.remarks[-1]
    assert "36 pixels of 6 test images, 9 to 9 of a class" in latex
    one = "how much another seed would differ is not known"
    assert (one in markdown) == (one in latex) == (seeds == "0")
    assert ("over n = 2 seeds" in markdown) == (seeds == "0,1")

    rows = set(track.tables["embedding"].rows)
    assert set(numbers["row"]) == rows
    assert set(numbers.loc[numbers["space"] == "projection", "row"]) == rows - {"base"}
    overall = numbers[(numbers["scope"] == "all") & (numbers["row"] == "pne")]
    assert set(overall["metric"]) == set(METRICS)
    assert {"tree", "building", "pole", "tree, building"} <= set(numbers["scope"])
    assert (numbers["low"] <= numbers["high"]).all()
    assert markdown.count("| PNE (authors' code) |") == latex.count(r"\multicolumn{8}{l}") == 6
    value = overall.loc[(overall["metric"] == "alignment") & (overall["space"] == "penultimate"), "value"].item()
    assert all(f"{value:.3f}" in text for text in (markdown, latex, page))


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
def test_the_embedding_table_compiles(quick, tmp_path):
    write_features(quick)
    assert main(["--table", "embedding", "--track", "quick", "--results", str(tmp_path)]) == 0
    folder = tmp_path / "quick" / "tables"
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_runs_that_sampled_other_pixels_cannot_be_paired_and_missing_features_are_named(quick, tmp_path, capsys):
    arguments = ["--table", "embedding", "--track", "quick", "--results", str(tmp_path)]
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
    track = load_track("quick", results=tmp_path, seeds=(0, 1))
    for number, row in enumerate(track.tables["embedding"].rows.values()):
        for seed, run in row.runs.items():
            features = made_up_features(run, seed=10 * number + seed, projection=row.key != "base")
            features.write(features_file(track.runs[run]))
    command("analysis.tables", "--table", "embedding", "--track", "quick", "--seeds", "0,1", "--results", tmp_path)
    paths = (tmp_path / "quick" / "tables").glob("embedding.*")
    golden("tables/embedding", {path.name: path.read_text() for path in paths})
