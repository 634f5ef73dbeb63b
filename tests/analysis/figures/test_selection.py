"""What figures show is chosen by the stated rules."""

import numpy as np

from analysis.figures.selection import (
    IMAGES_OF_CONFUSION,
    MOST_CONFUSIONS,
    image_miou,
    select_confusions,
    select_images,
)
from pne.counts import Confusion


def entries(*matrices: list[list[int]]) -> Confusion:
    counts = np.array(matrices)
    image, true, predicted = np.nonzero(counts)
    names = tuple(f"i{index}" for index in range(len(counts)))
    return Confusion(image, true, predicted, counts[image, true, predicted], names, counts.shape[1])


def test_image_miou_counts_the_classes_labelled_in_the_image():
    one = entries([[8, 2, 0], [0, 0, 0], [0, 5, 5]], [[10, 0, 0], [0, 0, 0], [0, 0, 0]])
    # image 0: class 0 IoU 8/10, class 2 IoU 5/10; class 1 is predicted, but not labelled
    np.testing.assert_allclose(image_miou(one), [65, 100])


def test_images_are_picked_by_gain_median_and_loss():
    def right(*shares: int) -> Confusion:
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
