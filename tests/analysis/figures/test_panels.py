"""Images, labels and predictions in the right panels, chosen by the stated rules."""

import numpy as np
import pytest
from samples import CLASSES, PALETTE, made_up_pairs, made_up_predictions

from analysis.figures.confusions import (
    IMAGES_OF_CONFUSION,
    MOST_CONFUSIONS,
    Entries,
    image_miou,
    read_entries,
    select_confusions,
    select_images,
)
from analysis.figures.panels import CHANGE_COLOURS, CHANGES, change_map, draw_comparison, draw_pairs, name_negatives
from analysis.figures.style import paint, paper_style
from pne.engine.confusion import Confusion, write_confusion
from pne.errors import UserError


def entries(*matrices: list[list[int]]) -> Entries:
    counts = np.array(matrices)
    image, true, predicted = np.nonzero(counts)
    names = tuple(f"i{index}" for index in range(len(counts)))
    return Entries(image, true, predicted, counts[image, true, predicted], names, counts.shape[1])


def test_a_change_map_says_what_became_of_each_pixel():
    label = np.array([[0, 0, 0, 0, 255]])
    baseline = np.array([[0, 1, 0, 1, 0]])
    ours = np.array([[0, 0, 1, 1, 0]])
    names = [CHANGES[value] for value in change_map(label, baseline, ours, 4)[0]]
    assert [name.split(":")[0] for name in names] == ["right in both", "gain", "loss", "wrong in both", "ignored"]


def test_ignored_pixels_are_painted_white():
    painted = paint(np.array([[0, 3, 255, 200]]), PALETTE)
    assert painted.tolist() == [[PALETTE[0].tolist(), PALETTE[3].tolist(), [255] * 3, [255] * 3]]


def test_a_comparison_shows_every_image_in_its_own_size():
    baseline, ours = made_up_predictions("base", 1), made_up_predictions("ours", 2)
    with paper_style():
        figure = draw_comparison(baseline, ours, ["largest gain: +3.0", "median: −0.1"])
    axes = np.array(figure.axes).reshape(2, 5)
    assert [ax.get_title() for ax in axes[0]] == ["Image", "Label", "Baseline", "Ours", "Change"]
    for row, (height, width) in enumerate([(12, 20), (10, 16)]):
        image, label, before = baseline.panel(row)
        after = ours.panel(row)[2]
        expected = [
            image,
            paint(label, PALETTE),
            paint(before, PALETTE),
            paint(after, PALETTE),
            CHANGE_COLOURS[change_map(label, before, after, 4)],
        ]
        for ax, array in zip(axes[row], expected, strict=True):
            assert np.array_equal(ax.images[0].get_array(), array)
            assert array.shape[:2] == (height, width)
    assert axes[1, 0].get_ylabel() == "median: −0.1"
    legends = [[text.get_text() for text in legend.get_texts()] for legend in figure.legends]
    assert legends == [list(CHANGES), list(CLASSES)]


def test_predictions_of_different_images_are_refused():
    baseline, ours = made_up_predictions("base", 1), made_up_predictions("ours", 2)
    ours.names[0] = "other"
    with pytest.raises(UserError, match="different images"):
        draw_comparison(baseline, ours, ["", ""])


def test_pairs_stand_on_the_label_pixels_of_their_cells_in_all_panels():
    pairs = made_up_pairs()
    with paper_style():
        figure = draw_pairs(pairs)
    assert len(figure.axes) == 3
    for ax in figure.axes:
        drawn = {part.get_label(): np.asarray(part.get_offsets()).tolist() for part in ax.collections}
        # Row i of 4 reads pixel i * 12 // 4 of the label, column j of 6 pixel j * 25 // 6.
        assert drawn == {"anchors": [[0, 0], [16, 9]], "positives": [[8, 6]], "negatives": [[0, 3], [8, 3]]}
    painted = figure.axes[2].images[0].get_array()
    columns = [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4  # of 20; those of the last cell, from 20 on, are padding
    expected = pairs.prediction[np.repeat(np.arange(4), 3)[:, None], np.array(columns)[None]]
    assert np.array_equal(painted, paint(expected, PALETTE))
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[:2] == ["anchors: tree taken for building", "positives: correct tree"]


def test_the_legend_calls_negatives_correct_pixels_of_the_predicted_class_only_where_they_are():
    pairs = made_up_pairs()
    pixels = tuple(pairs.label_pixels(pairs.negatives).T)
    pairs.label[pixels], pairs.prediction[tuple(pairs.negatives.T)] = 1, 1
    assert name_negatives(pairs) == "correct building"
    pairs.label[pixels], pairs.prediction[tuple(pairs.negatives.T)] = 2, 2
    assert name_negatives(pairs) == "correct pixels of other classes"
    pairs.label[pixels] = 0
    assert name_negatives(pairs) == "pixels of other classes"


def test_image_miou_counts_the_classes_labelled_in_the_image():
    one = entries([[8, 2, 0], [0, 0, 0], [0, 5, 5]], [[10, 0, 0], [0, 0, 0], [0, 0, 0]])
    # image 0: class 0 IoU 8/10, class 2 IoU 5/10; class 1 is predicted, but not labelled
    np.testing.assert_allclose(image_miou(one), [65, 100])


def test_images_are_picked_by_gain_median_and_loss():
    def right(*shares: int) -> Entries:
        return entries(*[[[share, 100 - share], [0, 100]] for share in shares])

    baseline, ours = right(50, 50, 50, 50, 50), right(50, 90, 20, 60, 51)
    selection = select_images(baseline, ours)
    assert [image.index for image in selection.images] == [1, 3, 4, 2]
    assert [image.reason.split(":")[0] for image in selection.images] == [
        "largest gain",
        "2nd largest gain",
        "median",
        "largest loss",
    ]
    assert selection.images[0].reason.endswith("+32.1")  # (90/100 + 100/110 - 50/100 - 100/150) / 2


def test_one_image_is_shown_once_and_no_gain_is_called_a_loss():
    baseline, ours = entries([[5, 5], [0, 10]]), entries([[9, 1], [0, 10]])
    assert [image.index for image in select_images(baseline, ours).images] == [0]
    many = entries(*[[[5, 5], [0, 10]]] * 4), entries(*[[[5 + n, 5 - n], [0, 10]] for n in (1, 2, 3, 4)])
    assert "smallest gain" in select_images(*many).images[-1].reason


def test_ties_go_to_the_earlier_image_at_both_ends():
    baseline = entries(*[[[5, 5], [0, 10]]] * 6)
    ours = entries(*[[[5 + n, 5 - n], [0, 10]] for n in (-1, 2, 0, 2, 1, -1)])
    selection = select_images(baseline, ours)
    assert [image.index for image in selection.images] == [1, 3, 2, 0]
    assert [image.reason.split(":")[0] for image in selection.images][::3] == ["largest gain", "largest loss"]


def test_confusions_are_ranked_by_their_pixels_and_looked_for_where_they_can_be_shown():
    # Class 2 is taken for 0 most often, but no image shows 2 predicted rightly; then 1 for 0, most often in image 1.
    size = 3
    first = np.zeros((size, size), int)
    first[2, 0], first[0, 0], first[1, 0], first[1, 1] = 90, 50, 20, 30
    second = np.zeros((size, size), int)
    second[1, 0], second[1, 1], second[0, 0], second[0, 1] = 25, 40, 25, 3
    third = np.zeros((size, size), int)
    third[1, 0], third[1, 1], third[0, 0] = 40, 39, 90  # more mistaken than correct pixels
    found = select_confusions(entries(first, second, third)).confusions
    ranked = [(one.image.index, one.true_class, one.predicted_class, one.pixels) for one in found]
    assert ranked == [(1, 1, 0, 25), (0, 1, 0, 20), (1, 0, 1, 3)]


def test_a_confusion_is_looked_for_in_a_few_images_and_all_in_all_in_not_too_many():
    wide = [np.full((12, 12), 1) + np.eye(12, dtype=int) * 50 for _ in range(8)]
    found = select_confusions(entries(*wide)).confusions
    assert len(found) == MOST_CONFUSIONS
    assert [one.image.index for one in found[:IMAGES_OF_CONFUSION]] == list(range(IMAGES_OF_CONFUSION))
    assert (found[IMAGES_OF_CONFUSION].true_class, found[IMAGES_OF_CONFUSION].predicted_class) == (0, 2)


def test_without_confusion_the_selection_is_empty():
    assert select_confusions(entries([[5, 0], [0, 5]])).confusions == []


def test_counts_are_read_as_the_evaluation_writes_them(tmp_path):
    path = tmp_path / "single_scale.confusion.npz"
    made = entries([[3, 1], [0, 2]], [[0, 4], [1, 0]])
    arrays = [part.astype(np.int32) for part in (made.image, made.true, made.predicted)]
    write_confusion(path, Confusion(*arrays, made.count, names=("a", "b"), num_classes=2))
    read = read_entries(path)
    assert read.names == ("a", "b")
    assert read.per_image(read.true != read.predicted).tolist() == [1, 5]
    path.write_bytes(b"PK")
    with pytest.raises(UserError, match="no readable confusion counts"):
        read_entries(path)


def test_truncated_and_spoilt_counts_are_one_clear_error(tmp_path):
    path = tmp_path / "single_scale.confusion.npz"
    random = np.random.default_rng(0)
    made = entries(*random.integers(0, 1000, (20, 8, 8)).tolist())
    arrays = [part.astype(np.int32) for part in (made.image, made.true, made.predicted)]
    write_confusion(path, Confusion(*arrays, made.count, names=made.names, num_classes=8))
    whole = path.read_bytes()
    spoilt = bytearray(whole)
    spoilt[200:260] = bytes(60)
    for content in (whole[: len(whole) // 2], whole[:-30], bytes(spoilt)):
        path.write_bytes(content)
        with pytest.raises(UserError, match="no readable confusion counts"):
            read_entries(path)
