"""Number formats, memory layouts, and clear errors."""

import copy
import pickle

import pytest
import torch
from loss_scenes import evaluate, every_loss, make_batch

from pne.losses import PNELoss, sample_pairs
from pne.losses.pixels import resize_labels
from pne.losses.similarity import pair_cosines


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


@every_loss
def test_other_integer_labels_and_numbers_just_outside_the_classes(loss_class):
    *maps, labels = make_batch(classes=4)
    others = [labels.to(torch.uint8), labels.int(), *(labels.masked_fill(labels == 255, i) for i in (4, -1))]
    value, *values = (evaluate(loss_class(), (*maps, given))[0] for given in (labels, *others))
    assert values == [value] * 4


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
        ((embeddings, logits, labels.float()), TypeError, "labels must be integers, int64 for.*; got torch.float32"),
        ((embeddings.long(), logits, labels), TypeError, "must be floating; got torch.int64"),
        ((embeddings, logits.numpy(), labels), TypeError, "logits must be a tensor; got ndarray"),
        ((embeddings.to("meta"), logits, labels), ValueError, r"must be on one device; got \['cpu', 'meta'\]"),
        ((embeddings, logits, labels, None), TypeError, "ignore_index must be an integer.*got None"),
        ((embeddings, logits, labels, 255.0), TypeError, "ignore_index must be an integer.*got 255.0"),
        ((embeddings, logits, labels, 255, 3), TypeError, "generator must be a torch.Generator or None; got 3"),
    ]
    for arguments, kind, message in cases:
        with pytest.raises(kind, match=message):
            loss(*arguments)


def test_copies_keep_the_options():
    loss = PNELoss(temperature=0.5)
    with pytest.raises(AttributeError, match=r"temperature of PNELoss is fixed.*temperature=0\.01"):
        loss.temperature = 0.01
    for same in (loss, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert same.options["temperature"] == 0.5
