"""The losses of misclassified pixels against plain loops, for every option."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_reference import AnchorPairs, classify, find_sets, list_pairs, reference_loss
from loss_scenes import evaluate, make_batch

from pne.losses import AsymmetricContrastLoss, PNELoss, sample_pairs

FIXED = {
    "temperature": st.sampled_from([0.1, 0.5, 1.0, 10.0]),
    "detach_samples": st.booleans(),
    "detach_anchor_norm": st.booleans(),
    "anchor_sets": st.sampled_from(["individual", "mixed"]),
    "reduction": st.sampled_from(["anchor_mean", "set_size"]),
    "empty_negatives": st.sampled_from(["drop", "anchors"]),
    "max_set_size": st.sampled_from([None, 1, 3, 6]),
    "positive_weight": st.sampled_from([None, "softmax", "logit"]),
    "normalize_weight": st.booleans(),
    "anchors_from": st.sampled_from(["errors", "labelled"]),
    "anchor_draw": st.sampled_from(["uniform", "balanced"]),
    "negative_mean": st.booleans(),
}
RASTER = {
    **FIXED,
    "sampling": st.just("raster"),
    "num_samples": st.sampled_from([1, 4, 7, 100]),
    "max_anchors": st.sampled_from([None, 1, 8, 20, 40, 200]),
    "anchors_per_set": st.sampled_from([None, 1, 2, 5, 100]),
    "negatives": st.sampled_from(["corresponding", "hard"]),
}
EVERYTHING = {
    **FIXED,
    "sampling": st.just("random"),
    "num_samples": st.sampled_from([99, 120]),
    "max_anchors": st.sampled_from([None, 200]),
    "anchors_per_set": st.sampled_from([None, 99]),
    "negatives": st.sampled_from(["corresponding", "random"]),
}
SCENES = {
    "images": st.integers(1, 3),
    "classes": st.sampled_from([2, 3, 5, 171]),
    "error_rate": st.sampled_from([0.05, 0.4, 0.9]),
    "ignored": st.sampled_from([0.0, 0.3]),
    "scale": st.integers(1, 2),
    "seed": st.integers(0, 1000),
}


misclassified = pytest.mark.parametrize("loss_class", [PNELoss, AsymmetricContrastLoss])


def build(loss_class, options):
    return loss_class(**{name: options[name] for name in loss_class().options})


def check(loss, batch, pairs, seed=0):
    value, gradient = evaluate(loss, batch, seed)
    embeddings = batch[0].clone().requires_grad_()
    expected = reference_loss(embeddings, batch[1], pairs, loss.options)
    (expected_gradient,) = torch.autograd.grad(expected, embeddings)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-9, atol=1e-12)
    scale = expected_gradient.abs().max().clamp(min=1e-12)
    torch.testing.assert_close(gradient / scale, expected_gradient / scale, rtol=0, atol=1e-8)
    assert loss.statistics["anchors"] == len(pairs)
    assert loss.statistics["sets"] == len({(pair.image, pair.anchor_set) for pair in pairs})


@misclassified
@pytest.mark.parametrize("without_chance", [RASTER, EVERYTHING], ids=["raster", "everything"])
@settings(max_examples=60)
@given(drawn=st.data(), scene=st.fixed_dictionaries(SCENES))
def test_what_is_not_left_to_chance_equals_plain_loops(loss_class, without_chance, drawn, scene):
    batch, loss = make_batch(**scene), build(loss_class, drawn.draw(st.fixed_dictionaries(without_chance)))
    check(loss, batch, list_pairs(*batch, loss.options))


RANDOM = {
    **FIXED,
    "sampling": st.sampled_from(["random", "raster"]),
    "num_samples": st.sampled_from([1, 4, 7, 100]),
    "max_anchors": st.sampled_from([None, 1, 8, 20, 40, 200]),
    "anchors_per_set": st.sampled_from([None, 1, 2, 5]),
    "negatives": st.sampled_from(["corresponding", "hard", "random"]),
}


def as_pairs(sample, sets, options):
    """Bring drawn pairs to the form of the reference, and check that each was allowed."""
    pairs = []
    rows = zip(*(getattr(sample, name).tolist() for name in sample.__dataclass_fields__), strict=True)
    for image, anchor, predicted, label, times, positive, positive_count, negative, negative_count in rows:
        key = (label,) if options["anchor_sets"] == "mixed" else (label, predicted)
        members, positives, negatives = sets[image][key]
        assert anchor in members
        drawn = []
        for pixels, counts, candidates in (
            (positive, positive_count, positives),
            (negative, negative_count, negatives or members),
        ):
            chosen = [pixel for pixel, count in zip(pixels, counts, strict=True) if count]
            assert set(chosen) <= set(candidates)
            assert len(set(chosen)) == len(chosen)
            itself = options["anchors_from"] == "labelled" and candidates is positives and anchor in candidates
            assert not (itself and anchor in chosen)
            if candidates is not members:
                wanted = min(options["num_samples"], len(candidates))
                assert len(chosen) == wanted or (itself and len(chosen) == wanted - 1)
            if options["sampling"] == "raster":
                assert sum(counts) == options["num_samples"] or itself
                assert max(counts) - min(count for count in counts if count) <= 1
            else:
                assert set(counts) <= {0, 1}
            drawn.append([pixel for pixel, count in zip(pixels, counts, strict=True) for _ in range(count)])
        pairs.append(AnchorPairs(image, anchor, times, key, len(members), *drawn))
    return pairs


@misclassified
@settings(max_examples=60)
@given(options=st.fixed_dictionaries(RANDOM), scene=st.fixed_dictionaries(SCENES))
def test_random_sampling_equals_plain_loops_over_the_drawn_pairs(loss_class, options, scene):
    batch, loss = make_batch(**scene), build(loss_class, options)
    sets = [find_sets(*image, loss.options) for image in zip(*classify(*batch[1:]), batch[1], strict=True)]
    sample = sample_pairs(loss, *batch, generator=torch.Generator().manual_seed(5))
    pairs = as_pairs(sample, sets, loss.options)
    check(loss, batch, pairs, seed=5)

    limit = options["max_set_size"] or 1000
    kept = [{k: len(s[0]) for k, s in image.items() if len(s[0]) <= limit} for image in sets]
    per_set = options["anchors_per_set"] or 1000
    for image, sizes in enumerate(kept):
        drawn = [pair for pair in pairs if pair.image == image]
        available = sum(min(size, per_set) for size in sizes.values())
        wanted = min(available, options["max_anchors"] or 1000)
        lonely = sum(len(positives) == 1 for _, positives, _ in sets[image].values())  # itself its only positive
        if options["num_samples"] > 1:
            assert wanted - lonely * (options["anchors_from"] == "labelled") <= len(drawn) <= wanted
        assert len({pair.anchor for pair in drawn}) == len(drawn)
        if options["anchor_draw"] == "balanced" and options["anchors_from"] == "errors":
            shares = Counter(pair.anchor_set for pair in drawn)
            fair = max(shares.values(), default=0) - 1
            assert all(shares[key] >= min(size, per_set, fair) for key, size in sizes.items())
        if options["negatives"] == "hard" and options["anchors_from"] == "errors":
            unit = torch.nn.functional.normalize(batch[0][image].flatten(1), dim=0).T
            for pair in drawn:
                centre = sum(unit[mate.anchor] * mate.times for mate in drawn if mate.anchor_set == pair.anchor_set)
                _, _, candidates = sets[image][pair.anchor_set]
                hardest = sorted(candidates, key=lambda i, to=unit @ centre: -float(to[i]))[: options["num_samples"]]
                assert set(pair.negatives) == set(hardest) or not candidates


def test_a_balanced_draw_takes_of_each_set_alike():
    batch = make_batch(images=1, classes=3, error_rate=0.5)
    loss = PNELoss(max_anchors=9, anchor_draw="balanced")
    sample = sample_pairs(loss, *batch, generator=torch.Generator().manual_seed(0))
    shares = Counter(zip(sample.label.tolist(), sample.predicted.tolist(), strict=True))
    assert sorted(shares.values()) == [1, 1, 1, 2, 2, 2]


def test_statistics_describe_the_drawn_pairs():
    batch = make_batch(images=3, seed=4)
    loss = PNELoss(num_samples=6, max_anchors=9)
    evaluate(loss, batch, seed=2)
    sample = sample_pairs(loss, *batch, generator=torch.Generator().manual_seed(2))
    unit = torch.nn.functional.normalize(batch[0].flatten(2), dim=1)
    probability = batch[1].softmax(1).amax(1).flatten(1)

    def mean_cosine(pixels):
        rows = zip(sample.image, sample.anchor, pixels, strict=True)
        means = [
            (unit[image, :, anchor] @ unit[image][:, chosen[chosen >= 0]]).mean() for image, anchor, chosen in rows
        ]
        return torch.stack(means).mean().float()

    rows = zip(sample.image.tolist(), sample.positive.tolist(), strict=True)
    drawn = {(image, pixel) for image, pixels in rows for pixel in pixels if pixel >= 0}
    weights = torch.stack([probability[image, pixel] for image, pixel in sorted(drawn)])
    expected = {
        "anchors": torch.tensor(float(len(sample.anchor))),
        "sets": torch.tensor(float(torch.stack([sample.image, sample.label, sample.predicted]).unique(dim=1).shape[1])),
        "positive_similarity": mean_cosine(sample.positive),
        "negative_similarity": mean_cosine(sample.negative),
        "weight_mean": weights.mean().float(),
        "weight_std": weights.std(correction=0).float(),
    }
    assert list(loss.statistics) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(loss.statistics[name], value, rtol=1e-6, atol=1e-7)
        assert not loss.statistics[name].requires_grad


def test_presets():
    authors = PNELoss.from_preset("authors", temperature=2)
    names = ("temperature", "max_set_size", "sampling")
    assert [authors.options[name] for name in names] == [2.0, 199, "raster"]
    assert PNELoss.from_preset("paper").options == PNELoss().options
    assert repr(PNELoss(temperature=2)) == "PNELoss(temperature=2.0)"
    for preset, options, message in (
        ("autors", {}, r"autors is no preset of PNELoss; did you mean authors\? allowed: paper, authors"),
        ("paper", {"temprature": 1}, "temprature is no option of PNELoss; did you mean temperature"),
        ("authors", {"temperature": 0}, "option temperature must be a finite number >= 1e-06; got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            PNELoss.from_preset(preset, **options)


def test_loss_of_a_subclass_has_the_options_of_its_base():
    class OwnLoss(PNELoss):
        pass

    assert OwnLoss(temperature=2).options == PNELoss(temperature=2).options
