"""The cross-image contrast against plain loops, and its memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_reference import reference_pixel_contrast
from loss_scenes import evaluate, make_batch

from pne.losses import PixelContrastLoss
from pne.losses.functional import pixel_contrast
from pne.losses.pixel_contrast import PixelMemory
from pne.losses.pixels import classify_pixels


def unit_vectors(*shape, seed=0):
    vectors = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(vectors, dim=-1)


def drawn_vectors(loss, batch, seed):
    """Return the unit vectors that a call with this seed contrasts, their images, pixels and labels."""
    draw = loss.draw(*batch, generator=torch.Generator().manual_seed(seed))
    image, pixel, label = (x[draw.present] for x in (draw.image, draw.pixel, draw.label))
    return torch.nn.functional.normalize(batch[0].flatten(2), dim=1)[image, :, pixel], image, pixel, label


@settings(max_examples=40)
@given(
    rows=st.integers(1, 5),
    views=st.integers(1, 3),
    stored=st.sampled_from([None, 1, 4]),
    temperature=st.sampled_from([0.1, 1.0]),
    seed=st.integers(0, 1000),
)
def test_the_function_equals_plain_loops(rows, views, stored, temperature, seed):
    anchors = unit_vectors(rows, views, 4, seed=seed).requires_grad_()
    classes = torch.randint(3, (rows,), generator=torch.Generator().manual_seed(seed))
    memory = None if stored is None else unit_vectors(3, stored, 4, seed=seed + 1)
    value = pixel_contrast(anchors, classes, memory, temperature, 0.5)
    expected = reference_pixel_contrast(
        anchors.flatten(0, 1), classes.repeat_interleave(views).tolist(), memory, temperature, 0.5
    )
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(x, anchors)[0] for x in (value, expected)), rtol=1e-8, atol=1e-10)


def test_a_memory_in_blocks_equals_one_at_once(monkeypatch):
    anchors, memory = unit_vectors(3, 4, 6).requires_grad_(), unit_vectors(5, 11, 6, seed=1)
    classes = torch.tensor([4, 0, 0])
    value = pixel_contrast(anchors, classes, memory)
    (gradient,) = torch.autograd.grad(value, anchors)
    monkeypatch.setattr("pne.losses.functional.BLOCK", 12 * 5 * 3)
    again = pixel_contrast(anchors, classes, memory)
    torch.testing.assert_close(again, value)
    torch.testing.assert_close(torch.autograd.grad(again, anchors)[0], gradient)


def test_errors_of_the_function():
    anchors, classes = unit_vectors(2, 3, 4), torch.tensor([0, 1])
    for arguments, message in (
        ((anchors, torch.zeros(3)), r"anchors \(A, V, D\) and classes \(A,\); got \(2, 3, 4\) and \(3,\)"),
        ((anchors, classes, torch.zeros(2, 3, 5)), r"memory \(C, M, D\) with D = 4; got \(2, 3, 5\)"),
        ((anchors, classes, None, 0), r"temperatures must be > 0; got 0 and 0\.07"),
    ):
        with pytest.raises(ValueError, match=message):
            pixel_contrast(*arguments)


@pytest.mark.parametrize("options", [{}, {"max_anchors": 30}, {"anchors_per_class": 3}, {"error_share": 0.0}])
def test_the_loss_contrasts_what_it_draws(options):
    batch = make_batch(images=3, seed=2)
    loss = PixelContrastLoss(**options)
    value, _ = evaluate(loss, batch, seed=9)
    unit, image, pixel, label = drawn_vectors(loss, batch, seed=9)
    assert len(set(zip(image.tolist(), pixel.tolist(), strict=True))) == len(image)
    assert torch.equal(batch[2].flatten(1)[image, pixel], label)
    expected = reference_pixel_contrast(unit, label.tolist(), None, 0.1, 0.07)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=0)


def test_the_anchors_are_shared_out_and_half_of_them_are_errors():
    _, logits, labels = batch = make_batch(images=2, dim=1, classes=3, height=24, width=24, error_rate=0.3, ignored=0)
    wrong = (logits.argmax(1) != labels).flatten(1)
    for maximum, per_class, share in ((60, 100, 10), (1024, 8, 8), (63, 100, 10), (18, 100, 3), (4, 100, 1)):
        draw = PixelContrastLoss(max_anchors=maximum, anchors_per_class=per_class).draw(*batch)
        assert draw.pairs == 6
        for image in range(2):
            for own in range(3):
                members = draw.present & (draw.image == image) & (draw.label == own)
                if maximum < 6:  # the last pairs get nothing
                    assert members.sum() == int(image * 3 + own < maximum)
                    continue
                assert members.sum() == share
                assert wrong[image, draw.pixel[members]].sum() == share // 2


def test_correct_pixels_fill_up_where_errors_run_out_and_errors_where_correct_ones_do():
    labels = torch.zeros(1, 1, 12, dtype=torch.int64)
    labels[0, 0, 6:] = 1
    predicted = labels.clone()
    predicted[0, 0, 0] = 1  # one error of class 0
    predicted[0, 0, 7:] = 0  # one correct pixel of class 1
    logits = torch.nn.functional.one_hot(predicted, 2).permute(0, 3, 1, 2).float()
    draw = PixelContrastLoss(anchors_per_class=4).draw(torch.ones(1, 1, 1, 12), logits, labels)
    wrong = (predicted != labels)[0, 0, draw.pixel]
    assert [int((wrong & draw.present & (draw.label == own)).sum()) for own in (0, 1)] == [1, 3]
    assert [int((~wrong & draw.present & (draw.label == own)).sum()) for own in (0, 1)] == [3, 1]


CHANGES = {
    "temperature": 0.3,
    "base_temperature": 0.1,
    "max_anchors": 20,
    "anchors_per_class": 3,
    "error_share": 0.2,
    "memory_size": 8,
    "pixels_per_image": 2,
}


def test_every_option_changes_the_value():
    batch = make_batch(error_rate=0.3)

    def value(**options):
        base = {"num_classes": 4, "channels": 6, "anchors_per_class": 8, "memory_size": 30}
        loss = PixelContrastLoss(**{**base, **options})
        evaluate(loss, batch)
        return evaluate(loss, batch)[0]

    expected = value()
    for name in PixelContrastLoss().options:
        assert not torch.isclose(value(**{name: CHANGES[name]}), expected, rtol=1e-6), name


def test_the_memory_is_contrasted_before_the_batch_is_stored():
    one, two = make_batch(seed=1), make_batch(seed=2)
    loss = PixelContrastLoss(memory_size=7, num_classes=4, channels=6, pixels_per_image=2)
    assert evaluate(loss, one)[0] == 0  # nothing stored yet
    stored, filled = loss.memory.vectors.clone().double(), loss.memory.filled()
    value, gradient = evaluate(loss, two, seed=3)
    unit, _, _, label = drawn_vectors(loss, (two[0].requires_grad_(), *two[1:]), seed=3)
    rows = [stored[c][filled[c]] for c in range(4)]
    expected = reference_pixel_contrast(unit, label.tolist(), rows, 0.1, 0.07)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, two[0])[0])
    assert not torch.equal(stored, loss.memory.vectors.double())


def test_evaluation_mode_leaves_the_memory_alone():
    loss = PixelContrastLoss(memory_size=7, num_classes=4, channels=6).eval()
    evaluate(loss, make_batch())
    assert not loss.memory.filled().any()


def test_the_memory_needs_to_know_the_sizes():
    with pytest.raises(ValueError, match="a memory needs num_classes"):
        PixelContrastLoss(memory_size=5)
    loss = PixelContrastLoss(memory_size=5, num_classes=3, channels=6)
    with pytest.raises(ValueError, match="made for num_classes=3, channels=6; got 4 classes and embeddings of 6 chan"):
        evaluate(loss, make_batch())


def test_a_stored_state_continues():
    one, two = make_batch(seed=1), make_batch(seed=2)
    options = {"memory_size": 5, "num_classes": 4, "channels": 6}
    loss, resumed = PixelContrastLoss(**options), PixelContrastLoss(**options)
    evaluate(loss, one)
    resumed.load_state_dict(loss.state_dict())
    assert torch.equal(evaluate(loss, two)[0], evaluate(resumed, two)[0])
    assert sorted(loss.state_dict()) == ["memory.pixel_count", "memory.segment_count", "memory.vectors"]


@pytest.mark.parametrize("size", [1, 3, 5, 40])
@pytest.mark.parametrize("per_image", [1, 4])
def test_queues_keep_the_latest_in_order(size, per_image):
    """Against lists that grow at the end and are cut at the front."""
    memory = PixelMemory(4, 6, size, per_image)
    segments, pixels = ([[] for _ in range(4)] for _ in range(2))
    for step in range(6):
        embeddings, logits, labels = make_batch(images=2, seed=step, ignored=0.5, height=3, width=7)
        if step == 3:
            labels.fill_(255)
        unit = torch.nn.functional.normalize(embeddings, dim=1)
        memory.update(embeddings, classify_pixels(logits, labels, 255), torch.Generator().manual_seed(step))
        for image, label in zip(unit, labels, strict=True):
            for own in set(label.flatten().tolist()) - {255}:
                members = image[:, label == own]
                segments[own].append(torch.nn.functional.normalize(members.mean(1), dim=0))
                pixels[own] += [members] * min(per_image, members.shape[1])
        filled = memory.filled()
        for own in range(4):
            for queue, expected, offset in ((memory.segment_count, segments, 0), (memory.pixel_count, pixels, size)):
                assert queue[own] == len(expected[own])
                latest = list(enumerate(expected[own]))[-size:]
                assert filled[own, offset : offset + size].sum() == len(latest)
                rows = memory.vectors[own, offset : offset + len(latest)]
                assert len(rows.unique(dim=0)) == len(latest)  # the pixels of an image are distinct
                for number, vector in latest:
                    row = memory.vectors[own, offset + number % size].double()
                    if vector.dim() == 1:
                        torch.testing.assert_close(row, vector, rtol=0, atol=1e-6)
                    else:  # one of the pixels of the class in the image
                        assert (vector - row.unsqueeze(1)).abs().amax(0).min() < 1e-6
