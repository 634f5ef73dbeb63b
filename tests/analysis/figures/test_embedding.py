"""The metrics of embeddings against loops that read like their definitions, and on embeddings whose answer is known."""

import itertools
import math

import numpy as np
import pytest

from analysis.embedding import (
    OVERALL,
    Sample,
    average,
    image_weights,
    knn_purity,
    measure,
    probe_hits,
    summarise,
)
from analysis.embedding_pairs import class_cosines, uniformity
from analysis.statistics import widening

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
