"""What must hold for any input: invariances, finite values, right gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_scenes import evaluate, every_loss, every_setting, make_batch

from pne.losses import PixelContrastLoss, PNELoss
from pne.losses.base import STATISTICS

SCENES = {
    "seed": st.integers(0, 10**6),
    "classes": st.sampled_from([2, 4, 9]),
    "error_rate": st.sampled_from([0.1, 0.5]),
}


def any_scene(**more):
    return lambda test: settings(max_examples=15)(given(scene=st.fixed_dictionaries(SCENES), **more)(test))


@every_setting
@any_scene()
def test_the_order_of_pixels_does_not_matter(build, scene):
    embeddings, logits, labels = batch = make_batch(**scene)
    order = torch.randperm(99, generator=torch.Generator().manual_seed(scene["seed"]))

    def shuffle(x):
        return x.flatten(-2)[..., order].view_as(x)

    value, gradient = evaluate(build(), batch)
    shuffled_value, shuffled_gradient = evaluate(build(), tuple(shuffle(x) for x in (embeddings, logits, labels)))
    torch.testing.assert_close(shuffled_value, value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(shuffled_gradient, shuffle(gradient), rtol=1e-7, atol=1e-10)


@every_setting
@any_scene(exponent=st.floats(-6, 6))
def test_the_length_of_embeddings_does_not_matter(build, scene, exponent):
    batch = make_batch(**scene)
    generator = torch.Generator().manual_seed(scene["seed"])
    lengths = 10.0**exponent * (0.5 + torch.rand(2, 1, 9, 11, generator=generator, dtype=torch.float64))
    value, again = (evaluate(build(), (x, *batch[1:]))[0] for x in (batch[0], batch[0] * lengths))
    torch.testing.assert_close(again, value, rtol=1e-9, atol=1e-12)


@every_setting
@any_scene()
def test_ignored_pixels_do_not_matter(build, scene):
    embeddings, logits, labels = batch = make_batch(ignored=0.4, **scene)
    ignored = (labels == 255).unsqueeze(1)
    value, gradient = evaluate(build(), batch)
    assert not gradient.masked_select(ignored).any()
    other = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    classes = logits.shape[1]
    changed = torch.where(ignored, other, embeddings), torch.where(ignored, other[:, :1] * 50, logits)
    assert torch.equal(evaluate(build(), (*changed, labels))[0], value)
    for ignore_index in (-1, classes + 1, 254):
        renamed = labels.masked_fill(labels == 255, ignore_index)
        assert torch.equal(evaluate(build(), (embeddings, logits, renamed), ignore_index=ignore_index)[0], value)
    # class 0 is what is ignored; the former ignored pixels are no class, so left out, too
    expected, _ = evaluate(build(), (embeddings, logits, labels.masked_fill(labels == 0, 255)))
    torch.testing.assert_close(evaluate(build(), batch, ignore_index=0)[0], expected)


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=25)
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
def test_gradient_is_right_and_reaches_the_embeddings_alone(build):
    embeddings, logits, labels = make_batch(images=2, dim=3, height=4, width=6, error_rate=0.5, seed=8)
    loss = build()
    if loss.options.get("detach_samples"):
        loss = PNELoss.from_preset("authors", detach_samples=False, detach_anchor_norm=False)

    def value(x, logits=logits):
        return loss(x, logits, labels, generator=torch.Generator().manual_seed(0))

    embeddings.requires_grad_()
    assert torch.autograd.gradcheck(value, embeddings)
    logits.requires_grad_()
    whole = build()(embeddings, logits, labels)
    assert whole > 0
    whole.backward()
    assert logits.grad is None


@every_setting
@pytest.mark.parametrize(
    "case", ["all ignored", "all correct", "all wrong", "no class", "single pixel", "one pixel a class"]
)
def test_nothing_to_contrast_is_zero_and_connected(build, case):
    embeddings, logits, labels = make_batch(ignored=0)
    if case == "all ignored":
        labels.fill_(255)
    elif case == "no class":
        labels.fill_(77)
    elif case == "all correct":
        labels = logits.argmax(1)
    elif case == "single pixel":
        embeddings, logits, labels = torch.ones(1, 1, 1, 1), torch.ones(1, 2, 1, 1), torch.ones(1, 1, 1).long()
    elif case == "one pixel a class":  # class 0 is mistaken for class 1 and has no correct pixel
        embeddings, labels = embeddings[:1, :, :2, :2], torch.arange(4).view(1, 2, 2)
        logits = torch.nn.functional.one_hot(labels.clamp(min=1), 4).permute(0, 3, 1, 2) * 5.0
    else:
        labels = (logits.argmax(1) + 1) % 4
    loss = build()
    if case in ("all correct", "all wrong") and isinstance(loss, PixelContrastLoss):
        return  # there the true classes are contrasted, right or wrong
    value, gradient = evaluate(loss, (embeddings, logits, labels))
    assert value == 0
    assert not gradient.any()
    assert list(loss.statistics) == list(STATISTICS)
    if isinstance(loss, PixelContrastLoss):
        assert loss.statistics.pop("sets") == {"single pixel": 1, "one pixel a class": 4}.get(case, 0)
    assert all(statistic == 0 for statistic in loss.statistics.values())


def test_equal_similarities_cost_log_two():
    embeddings, logits, labels = make_batch()
    value = PNELoss(positive_weight=None)(torch.ones_like(embeddings), logits, labels)
    torch.testing.assert_close(value, torch.tensor(2.0, dtype=torch.float64).log())
