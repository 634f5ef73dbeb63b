"""Number formats, memory layouts, extreme numbers of classes, and clear errors."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from loss_reference import list_pairs, reference_loss
from loss_scenes import evaluate, make_batch

from pne.losses import AsymmetricContrastLoss, PixelContrastLoss, PNELoss, sample_pairs
from pne.losses.pixels import resize_labels
from pne.losses.similarity import pair_cosines

LOSSES = [PNELoss, AsymmetricContrastLoss, PixelContrastLoss]
every_loss = pytest.mark.parametrize("loss_class", LOSSES)


@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_are_computed_in_float32(loss_class, dtype):
    embeddings, logits, labels = make_batch(dtype=dtype)
    value, gradient = evaluate(loss_class(), (embeddings, logits, labels))
    expected, expected_gradient = evaluate(loss_class(), (embeddings.double(), logits.double(), labels))
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    scale = expected_gradient.abs().max()
    assert ((gradient.double() - expected_gradient).abs().max() / scale) < 0.01


@every_loss
def test_autocast_changes_nothing(loss_class):
    batch = make_batch(dtype=torch.float32)
    value, gradient = evaluate(loss_class(), batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again, gradient_again = evaluate(loss_class(), batch)
    assert again.dtype == torch.float32
    assert torch.equal(value, again)
    assert torch.equal(gradient, gradient_again)


def test_autocast_changes_no_listed_pair():
    batch = make_batch(dim=64, height=30, width=30, dtype=torch.float32)
    loss = PNELoss(negatives="hard", num_samples=5)
    expected = sample_pairs(loss, *batch, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = sample_pairs(loss, *batch, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.negative, expected.negative)


@every_loss
def test_memory_layout_does_not_matter(loss_class):
    embeddings, logits, labels = batch = make_batch()
    value, gradient = evaluate(loss_class(), batch)
    last = tuple(x.contiguous(memory_format=torch.channels_last) for x in (embeddings, logits))
    strided = tuple(x.repeat_interleave(2, 3)[..., ::2] for x in (embeddings, logits))
    transposed = tuple(x.transpose(2, 3).contiguous().transpose(2, 3) for x in (embeddings, logits))
    for layout in (last, strided, transposed):
        assert not layout[0].is_contiguous()
        x = layout[0].detach().requires_grad_()
        generator = torch.Generator().manual_seed(0)
        again = loss_class()(x, layout[1], labels.repeat_interleave(2, 2)[..., ::2], generator=generator)
        again.backward()
        torch.testing.assert_close(again, value)
        torch.testing.assert_close(x.grad, gradient)


@pytest.mark.parametrize("preset", ["paper", "authors"])
@pytest.mark.parametrize("classes", [2, 171])
def test_two_and_many_classes(preset, classes):
    batch = make_batch(classes=classes, height=14, width=14, seed=1)
    loss = PNELoss.from_preset(preset, max_anchors=None, num_samples=196)
    value, _ = evaluate(loss, batch)
    expected = reference_loss(*batch[:2], list_pairs(*batch, loss.options), loss.options)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    assert value > 0


@every_loss
def test_one_pixel_per_class(loss_class):
    labels = torch.arange(6).view(1, 2, 3)
    embeddings = torch.randn(1, 4, 2, 3, generator=torch.Generator().manual_seed(0))
    logits = torch.nn.functional.one_hot(labels, 6).permute(0, 3, 1, 2) * 5.0
    logits[0, :, 0, 0] = logits[0, :, 0, 1]  # class 0 is mistaken for class 1 and has no correct pixel
    value, gradient = evaluate(loss_class(), (embeddings, logits, labels))
    assert value == 0
    assert not gradient.any()


@every_loss
def test_a_single_pixel(loss_class):
    value, gradient = evaluate(
        loss_class(), (torch.ones(1, 1, 1, 1), torch.ones(1, 2, 1, 1), torch.ones(1, 1, 1).long())
    )
    assert value == 0
    assert not gradient.any()


@every_loss
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_other_integer_labels(loss_class, dtype):
    embeddings, logits, labels = batch = make_batch()
    assert torch.equal(
        evaluate(loss_class(), batch)[0], evaluate(loss_class(), (embeddings, logits, labels.to(dtype)))[0]
    )


@every_loss
@pytest.mark.parametrize("number", [4, -1])
def test_numbers_just_outside_the_classes_are_left_out(loss_class, number):
    embeddings, logits, labels = batch = make_batch(classes=4)
    other = labels.masked_fill(labels == 255, number)
    assert torch.equal(evaluate(loss_class(), (embeddings, logits, other))[0], evaluate(loss_class(), batch)[0])


@pytest.mark.parametrize("sizes", [((129, 97), (17, 13)), ((5, 7), (11, 9)), ((64, 96), (16, 24)), ((7, 7), (7, 3))])
def test_labels_are_resized_with_source_coordinates_rounded_down(sizes):
    (rows, columns), (height, width) = sizes
    labels = torch.arange(rows * columns).view(1, rows, columns)
    resized = resize_labels(labels, height, width)[0]
    for i in range(height):
        for j in range(width):
            assert resized[i, j] == labels[0, i * rows // height, j * columns // width]


def test_similarities_in_blocks_equal_those_at_once():
    generator = torch.Generator().manual_seed(0)
    anchor, sample = (torch.randn(2, 5, n, generator=generator, dtype=torch.float64).requires_grad_() for n in (7, 9))
    index = torch.randint(9, (2, 7, 4), generator=generator)
    outcomes = []
    for block in (None, 2 * 9 * 3, 1):
        cosines = pair_cosines(anchor, sample, index, block)
        outcomes.append((cosines, *torch.autograd.grad(cosines.sin().sum(), (anchor, sample))))
    for outcome in outcomes[1:]:
        for x, y in zip(outcome, outcomes[0], strict=True):
            torch.testing.assert_close(x, y)


def test_hard_negatives_in_blocks_equal_those_at_once(monkeypatch):
    batch, loss = make_batch(), PNELoss(negatives="hard", num_samples=5)
    expected = evaluate(loss, batch)[0]
    monkeypatch.setattr("pne.losses.draw.BLOCK", 500)
    assert torch.equal(evaluate(loss, batch)[0], expected)


@every_loss
def test_clear_errors(loss_class):
    embeddings, logits, labels = make_batch(images=2, dim=6, classes=4, height=9, width=11)
    loss = loss_class()
    cases = [
        ((embeddings[0], logits, labels), ValueError, r"expected embeddings \(B, D, h, w\)"),
        ((embeddings, logits, labels.unsqueeze(1)), ValueError, r"labels \(B, H, W\); got .* labels \(2, 1, 9, 11\)"),
        ((embeddings[..., :5], logits, labels), ValueError, "must agree in height and width"),
        ((embeddings[:1], logits, labels), ValueError, "equally many images"),
        ((embeddings, logits[:, :1], labels), ValueError, "at least two classes"),
        ((embeddings[:, :0], logits, labels), ValueError, "must not be empty"),
        (
            (embeddings, logits, labels.float()),
            TypeError,
            "labels must be integers, int64 for choice; got torch.float32",
        ),
        ((embeddings.long(), logits, labels), TypeError, "must be floating; got torch.int64"),
        ((embeddings, logits.numpy(), labels), TypeError, "logits must be a tensor; got ndarray"),
        ((embeddings.to("meta"), logits, labels), ValueError, r"must be on one device; got \['cpu', 'meta'\]"),
    ]
    for arguments, kind, message in cases:
        with pytest.raises(kind, match=message):
            loss(*arguments)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("ignore_index", None, "ignore_index must be an integer.*got None"),
        ("ignore_index", 255.0, "ignore_index must be an integer.*got 255.0"),
        ("generator", 3, "generator must be a torch.Generator or None; got 3"),
    ],
)
@every_loss
def test_arguments_of_another_type_are_named(loss_class, argument, value, message):
    embeddings, logits = torch.randn(1, 4, 3, 3), torch.randn(1, 2, 3, 3)
    with pytest.raises(TypeError, match=message):
        loss_class()(embeddings, logits, torch.zeros(1, 3, 3, dtype=torch.int64), **{argument: value})


def test_copies_keep_the_options():
    loss = PNELoss(temperature=0.5)
    with pytest.raises(AttributeError, match=r"temperature of PNELoss is fixed.*temperature=0\.01"):
        loss.temperature = 0.01
    for same in (loss, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert same.options["temperature"] == 0.5
