"""What must hold for any input: invariances, finite values, right gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_scenes import evaluate, make_batch

from pne.losses import AsymmetricContrastLoss, PixelContrastLoss, PNELoss

ALL = {"num_samples": 99, "max_anchors": 99}  # of images with at most 99 pixels: nothing is left to chance
SETTINGS = [
    pytest.param(lambda: PNELoss(**ALL), id="paper"),
    pytest.param(lambda: PNELoss(**ALL, anchor_sets="mixed", positive_weight="logit"), id="mixed"),
    pytest.param(lambda: PNELoss(**ALL, anchor_sets="mixed", negatives="hard"), id="hard"),
    pytest.param(lambda: PNELoss(**ALL, negatives="random", empty_negatives="anchors"), id="random"),
    pytest.param(lambda: PNELoss.from_preset("authors", sampling="random"), id="authors"),
    pytest.param(lambda: AsymmetricContrastLoss(**ALL), id="asymmetric"),
    pytest.param(lambda: PixelContrastLoss(), id="pixel"),
]
SCENES = {
    "seed": st.integers(0, 10**6),
    "classes": st.sampled_from([2, 4, 9]),
    "error_rate": st.sampled_from([0.1, 0.5]),
}

every_setting = pytest.mark.parametrize("build", SETTINGS)
any_scene = given(scene=st.fixed_dictionaries(SCENES))


@every_setting
@settings(max_examples=15, deadline=None)
@any_scene
def test_the_order_of_pixels_does_not_matter(build, scene):
    embeddings, logits, labels = batch = make_batch(**scene)
    order = torch.randperm(99, generator=torch.Generator().manual_seed(scene["seed"]))

    def shuffle(x):
        return x.flatten(-2)[..., order].view_as(x)

    value, gradient = evaluate(build(), batch)
    shuffled_value, shuffled_gradient = evaluate(build(), tuple(shuffle(x) for x in (embeddings, logits, labels)))
    torch.testing.assert_close(shuffled_value, value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(shuffled_gradient, shuffle(gradient), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    "build", [setting for setting in SETTINGS if setting.id in ("paper", "mixed", "hard", "asymmetric")]
)
@settings(max_examples=15, deadline=None)
@any_scene
def test_images_recombine_by_their_numbers_of_anchors(build, scene):
    batch = make_batch(images=3, **scene)
    whole, loss = evaluate(build(), batch)[0], build()
    total, anchors = 0.0, 0
    for image in range(3):
        value, _ = evaluate(loss, tuple(x[image : image + 1] for x in batch))
        total, anchors = (
            total + float(value) * int(loss.statistics["anchors"]),
            anchors + int(loss.statistics["anchors"]),
        )
    assert float(whole) == pytest.approx(total / max(anchors, 1), rel=1e-9)


@every_setting
@settings(max_examples=15, deadline=None)
@given(scene=st.fixed_dictionaries(SCENES), exponent=st.floats(-6, 6))
def test_the_length_of_embeddings_does_not_matter(build, scene, exponent):
    embeddings, logits, labels = batch = make_batch(**scene)
    generator = torch.Generator().manual_seed(scene["seed"])
    lengths = 10.0**exponent * (0.5 + torch.rand(2, 1, 9, 11, generator=generator, dtype=torch.float64))
    value, _ = evaluate(build(), batch)
    torch.testing.assert_close(
        evaluate(build(), (embeddings * lengths, logits, labels))[0], value, rtol=1e-9, atol=1e-12
    )


@every_setting
@settings(max_examples=15, deadline=None)
@any_scene
def test_ignored_pixels_do_not_matter(build, scene):
    embeddings, logits, labels = batch = make_batch(ignored=0.4, **scene)
    ignored = (labels == 255).unsqueeze(1)
    value, gradient = evaluate(build(), batch)
    assert not gradient.masked_select(ignored).any()
    other = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    classes = logits.shape[1]
    changed = torch.where(ignored, other, embeddings), torch.where(ignored, other[:, :1] * 50, logits)
    assert torch.equal(evaluate(build(), (*changed, labels))[0], value)
    for ignore_index in (-1, 0, classes + 1, 254):
        if ignore_index == 0:  # class 0 is what is ignored; the former ignored pixels are no class, so left out, too
            expected = evaluate(build(), (embeddings, logits, labels.masked_fill(labels == 0, 255)))[0]
            torch.testing.assert_close(evaluate(build(), batch, ignore_index=0)[0], expected)
        else:
            renamed = labels.masked_fill(labels == 255, ignore_index)
            assert torch.equal(evaluate(build(), (embeddings, logits, renamed), ignore_index=ignore_index)[0], value)


@pytest.mark.parametrize("loss_class", [PNELoss, AsymmetricContrastLoss, PixelContrastLoss])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=25, deadline=None)
@given(
    exponent=st.floats(-2, 2),
    seed=st.integers(0, 10**6),
    length=st.sampled_from([0.0, 1e-20, 1e-6, 1.0, 1e4]),
    alike=st.booleans(),
)
def test_value_and_gradient_are_finite(loss_class, dtype, exponent, seed, length, alike):
    embeddings, logits, labels = make_batch(seed=seed, dtype=dtype)
    embeddings = torch.ones_like(embeddings) if alike else torch.nn.functional.normalize(embeddings, dim=1)
    embeddings[:, :, ::2] *= length
    value, gradient = evaluate(loss_class(temperature=10.0**exponent), (embeddings, logits * 100, labels))
    assert torch.isfinite(value)
    assert value >= 0
    assert torch.isfinite(gradient).all()
    if length == 0:
        assert not gradient[:, :, ::2].any()


@every_setting
def test_gradient_is_right(build):
    embeddings, logits, labels = make_batch(images=2, dim=3, height=4, width=6, error_rate=0.5, seed=8)
    loss = build()
    if loss.options.get("detach_samples"):
        loss = PNELoss.from_preset("authors", detach_samples=False, detach_anchor_norm=False)
    embeddings.requires_grad_()
    assert loss(embeddings, logits, labels) > 0

    def value(x):
        return loss(x, logits, labels, generator=torch.Generator().manual_seed(0))

    assert torch.autograd.gradcheck(value, embeddings)


@every_setting
@pytest.mark.parametrize("case", ["all ignored", "all correct", "all wrong", "no class"])
def test_nothing_to_contrast_is_zero_and_connected(build, case):
    embeddings, logits, labels = make_batch(ignored=0)
    if case == "all ignored":
        labels.fill_(255)
    elif case == "no class":
        labels.fill_(77)
    elif case == "all correct":
        labels = logits.argmax(1)
    else:
        labels = (logits.argmax(1) + 1) % 4
    loss = build()
    if case in ("all correct", "all wrong") and isinstance(loss, PixelContrastLoss):
        return  # there the true classes are contrasted, right or wrong
    value, gradient = evaluate(loss, (embeddings, logits, labels))
    assert value == 0
    assert not gradient.any()
    assert all(torch.isfinite(statistic) for statistic in loss.statistics.values())


@every_setting
def test_no_gradient_reaches_the_logits(build):
    embeddings, logits, labels = make_batch()
    logits.requires_grad_()
    build()(embeddings.requires_grad_(), logits, labels).backward()
    assert logits.grad is None


def test_equal_similarities_cost_log_two():
    embeddings, logits, labels = make_batch()
    value = PNELoss(positive_weight=None)(torch.ones_like(embeddings), logits, labels)
    torch.testing.assert_close(value, torch.tensor(2.0, dtype=torch.float64).log())
