"""Images, labels and predictions in the right panels, chosen by the stated rules."""

import numpy as np
import pytest
from samples import CLASSES, PALETTE, made_up_pairs, made_up_predictions

from analysis.figures.confusions import Entries, image_miou, read_entries, select_confusion, select_images
from analysis.figures.panels import CHANGE_COLOURS, CHANGES, cell_centres, change_map, draw_comparison, draw_pairs
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


def test_pairs_stand_at_the_centres_of_their_cells_in_all_panels():
    pairs = made_up_pairs()
    with paper_style():
        figure = draw_pairs(pairs)
    assert len(figure.axes) == 3
    for ax in figure.axes:
        drawn = {part.get_label(): np.asarray(part.get_offsets()) for part in ax.collections}
        for name in ("anchors", "positives", "negatives"):
            np.testing.assert_allclose(drawn[name], cell_centres(getattr(pairs, name), pairs.grid, (12, 20)))
    # The cell of row 3, column 4 of 4 x 5 covers rows 9 to 11 and columns 16 to 19 of 12 x 20 pixels.
    np.testing.assert_allclose(cell_centres(np.array([(3, 4)]), pairs.grid, (12, 20)), [(17.5, 10)])
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["anchors: tree taken for building", "positives: correct tree", "negatives: correct building"]


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


def test_the_confusion_is_the_most_frequent_one_that_can_be_shown():
    # Class 2 is taken for 0 most often, but no image shows 2 predicted rightly; then 1 for 0, most often in image 1.
    size = 3
    first = np.zeros((size, size), int)
    first[2, 0], first[0, 0], first[1, 0], first[1, 1] = 90, 50, 20, 30
    second = np.zeros((size, size), int)
    second[1, 0], second[1, 1], second[0, 0] = 25, 40, 25
    third = np.zeros((size, size), int)
    third[1, 0], third[1, 1], third[0, 0] = 40, 39, 90  # more mistaken than correct pixels
    selection = select_confusion(entries(first, second, third))
    assert (selection.true_class, selection.predicted_class) == (1, 0)
    assert (selection.image.index, selection.pixels) == (1, 25)


def test_without_confusion_there_is_a_clear_error():
    with pytest.raises(UserError, match="no evaluated image shows a confusion"):
        select_confusion(entries([[5, 0], [0, 5]]))


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
