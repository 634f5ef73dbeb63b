"""Random draws: reproducible, distinct, uniform."""

from itertools import permutations

import pytest
import torch
from loss_scenes import evaluate, make_batch

from pne.losses import AsymmetricContrastLoss, PixelContrastLoss, PNELoss, sample_pairs
from pne.losses.pixels import compact, multiplicity, sort_groups

DRAWS = 800


def chi_square_fits(counts, trials):
    """Tell whether counts of `trials` draws of a fixed number of distinct pixels are uniform, at 4.9 sigma."""
    expected = counts.sum() / len(counts)
    share = expected / trials  # of draws that hold a given pixel: each count is binomial, the sum is fixed
    statistic = float(((counts - expected) ** 2).sum() / (expected * (1 - share)))
    freedom = len(counts) - 1
    return abs(statistic - freedom) < 4.9 * (2 * freedom) ** 0.5


def test_chi_square_sees_a_small_preference():
    generator = torch.Generator().manual_seed(0)
    weight = torch.ones(40)
    fair = torch.stack([torch.multinomial(weight, 8, generator=generator) for _ in range(DRAWS)])
    assert chi_square_fits(fair.flatten().bincount(minlength=40).double(), DRAWS)
    weight[:20] = 1.4
    unfair = torch.stack([torch.multinomial(weight, 8, generator=generator) for _ in range(DRAWS)])
    assert not chi_square_fits(unfair.flatten().bincount(minlength=40).double(), DRAWS)


@pytest.mark.parametrize("negatives", ["corresponding", "random"])
@pytest.mark.parametrize("sets", ["individual", "mixed"])
def test_pixels_are_drawn_with_equal_probability(negatives, sets):
    _, logits, labels = batch = make_batch(images=1, dim=1, height=12, width=24, error_rate=0.4, ignored=0)
    loss = PNELoss(num_samples=8, max_anchors=20, negatives=negatives, anchor_sets=sets)
    predicted, label = logits.argmax(1).flatten(), labels.flatten()
    anchors, positive, negative = (torch.zeros(*shape, len(label)) for shape in ((), (4,), (4, 4)))
    seen = torch.zeros(4, 4)
    generator = torch.Generator().manual_seed(3)
    for _ in range(DRAWS):
        sample = sample_pairs(loss, *batch, generator=generator)
        assert len(sample.anchor.unique()) == 20
        anchors[sample.anchor] += 1
        first = {}
        for row, key in enumerate(zip(sample.label.tolist(), sample.predicted.tolist(), strict=True)):
            first.setdefault(key, row)
        for (own, other), row in first.items():
            negative[own, other, sample.negative[row]] += 1
            seen[own, other] += 1
        for own, row in {own: row for (own, _), row in first.items()}.items():
            positive[own, sample.positive[row]] += 1
    assert chi_square_fits(anchors[predicted != label].double(), DRAWS)
    correct = predicted == label
    for own, other in permutations(range(4), 2):
        candidates = correct & (label == other)
        if negatives == "random" or sets == "mixed":
            candidates = correct & (label != own)  # every class is mistaken for every other in this scene
        counts = negative[own, other]
        assert counts.sum() == counts[candidates].sum()
        assert seen[own, other] < 100 or chi_square_fits(counts[candidates].double(), int(seen[own, other]))
    for own, counts in enumerate(positive):
        candidates = correct & (label == own)
        assert counts.sum() == counts[candidates].sum() > 700 * 8
        assert chi_square_fits(counts[candidates].double(), int(counts.sum()) // 8)


def test_anchors_kept_by_their_sets_are_drawn_with_equal_probability():
    _, logits, labels = batch = make_batch(images=1, dim=1, classes=3, height=12, width=20, error_rate=0.5, ignored=0)
    loss = PNELoss(anchors_per_set=6, max_anchors=9)
    predicted, label = logits.argmax(1).flatten(), labels.flatten()
    counts = torch.zeros(240)
    generator = torch.Generator().manual_seed(11)
    for _ in range(DRAWS):
        counts[sample_pairs(loss, *batch, generator=generator).anchor] += 1
    sets = []
    for own, other in permutations(range(3), 2):
        members = (label == own) & (predicted == other)
        assert members.sum() >= 6
        assert chi_square_fits(counts[members].double(), DRAWS)
        sets.append(counts[members].sum())
    # each set gives six pixels, so each has the same chance, however large it is
    assert (torch.stack(sets) / sum(sets) - 1 / 6).abs().max() < 0.01


def test_pixel_contrast_draws_pixels_with_equal_probability():
    _, logits, labels = batch = make_batch(images=2, dim=1, classes=3, height=12, width=20, error_rate=0.5)
    loss = PixelContrastLoss(max_anchors=60)
    predicted = logits.argmax(1)
    counts = torch.zeros(2, 240)
    generator = torch.Generator().manual_seed(4)
    for _ in range(DRAWS):
        draw = loss.draw(*batch, generator=generator)
        counts[draw.image[draw.present], draw.pixel[draw.present]] += 1
    for image in range(2):
        for own in range(3):
            for wrong in (False, True):
                members = ((labels == own) & ((predicted != labels) == wrong))[image].flatten()
                assert counts[image][members].sum() == DRAWS * 5  # 60 / 6 pairs, half of them errors
                assert chi_square_fits(counts[image][members].double(), DRAWS)


@pytest.mark.parametrize(
    "build",
    [
        lambda: PNELoss(num_samples=3, max_anchors=5),
        lambda: PNELoss(num_samples=3, anchors_per_set=2, max_anchors=None),
        lambda: PNELoss(num_samples=3, negatives="random", sampling="raster"),
        lambda: AsymmetricContrastLoss(num_samples=3, max_anchors=5),
        lambda: PixelContrastLoss(max_anchors=20),
    ],
)
def test_the_generator_alone_decides(build):
    batch = make_batch()
    torch.manual_seed(1)
    value, gradient = evaluate(build(), batch, seed=7)
    state = torch.random.get_rng_state()
    torch.manual_seed(2)
    again, gradient_again = evaluate(build(), batch, seed=7)
    assert torch.equal(value, again)
    assert torch.equal(gradient, gradient_again)
    assert evaluate(build(), batch, seed=8)[0] != value
    torch.manual_seed(1)
    assert torch.equal(state, torch.random.get_rng_state())  # the global generator was left alone


def test_without_a_generator_the_global_one_is_used():
    batch = make_batch()
    torch.manual_seed(5)
    values = [PNELoss(num_samples=3)(*batch) for _ in range(2)]
    assert values[0] != values[1]
    torch.manual_seed(5)
    assert PNELoss(num_samples=3)(*batch) == values[0]


def test_listed_pairs_are_those_of_the_loss():
    """The loss moves its generator exactly as listing its pairs does."""
    batch, loss = make_batch(), PNELoss(num_samples=3, anchors_per_set=2, max_anchors=4)
    one, two = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    loss(*batch, generator=one)
    sample_pairs(loss, *batch, generator=two)
    assert torch.equal(one.get_state(), two.get_state())
    with pytest.raises(TypeError, match="expected a PNELoss or AsymmetricContrastLoss; got PixelContrastLoss"):
        sample_pairs(PixelContrastLoss(), *batch)


def test_sorting_compaction_and_multiplicity():
    group = torch.tensor([[2, 0, 2, 1], [1, 1, 0, 2]])
    for shuffled in (None, torch.tensor([7, 2, 0, 5, 4, 6, 3, 1])):
        pixel, order = sort_groups(group, 3, shuffled)
        assert group.gather(1, pixel).tolist() == [[0, 1, 2, 2], [0, 1, 1, 2]]
        assert pixel.tolist() == [
            [1, 3, 0, 2] if shuffled is None else [1, 3, 2, 0],
            [2, *([0, 1] if shuffled is None else [1, 0]), 3],
        ]
        assert (order[:, 2:].diff() > 0)[0].all()
    place, present = compact(torch.tensor([[False, True, False, True], [False] * 4]), 3)
    assert place.tolist() == [[1, 3, 2], [0, 1, 2]]  # padding is spread
    assert present.tolist() == [[True, True, False], [False] * 3]
    rank = torch.arange(5)
    assert multiplicity(rank, torch.tensor(3), 5, cyclic=True).tolist() == [2, 2, 1, 0, 0]
    assert multiplicity(rank, torch.tensor(9), 4, cyclic=True).tolist() == [1, 1, 1, 1, 0]
    assert multiplicity(rank, torch.tensor(3), 5, cyclic=False).tolist() == [1, 1, 1, 0, 0]
    assert multiplicity(rank, torch.tensor(0), 5, cyclic=True).tolist() == [0] * 5
