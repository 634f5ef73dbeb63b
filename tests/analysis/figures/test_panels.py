"""Images, labels, predictions, pairs and pixels of t-SNE in the right panels."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from samples import CLASSES, PALETTE, made_up_features, made_up_pairs, made_up_predictions

from analysis.figures.panels import (
    CHANGE_COLOURS,
    CHANGES,
    HOLLOW,
    change_map,
    draw_comparison,
    draw_losses,
    draw_pairs,
    draw_sampling,
    name_negatives,
)
from analysis.figures.style import MARKERS, paint, paper_style, visible
from analysis.figures.tsne import Map, make_map
from pne.errors import UserError


@pytest.fixture(scope="module")
def plane() -> Map:
    """Both samples of one run on one plane."""
    return make_map([made_up_features()], 10, "sklearn", {})


@pytest.fixture(scope="module")
def sampling(plane: Map) -> Figure:
    with paper_style():
        return draw_sampling(plane)


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
        painted = [paint(part, PALETTE) for part in (label, before, after)]
        expected = [image, *painted, CHANGE_COLOURS[change_map(label, before, after, 4)]]
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


def test_the_sampling_figure_draws_each_sample_in_its_panel(plane, sampling):
    correct, by_label = sampling.axes
    assert _drawn(correct) == _rows(plane, plane.by_correct)
    assert _drawn(by_label) == _rows(plane, plane.by_label)
    assert not any("wrong" in part.get_label() for part in correct.collections)
    wrong = [part for part in by_label.collections if "wrong" in part.get_label()]
    assert sum(len(part.get_offsets()) for part in wrong) == (plane.by_label & (plane.label != plane.prediction)).sum()
    assert all(len(part.get_facecolors()) == 0 for part in wrong)  # hollow
    legend = [text.get_text() for text in sampling.legends[0].get_texts()]
    assert legend == [*CLASSES, "hollow: predicted wrongly"]


def test_classes_have_the_palettes_colours_and_shapes_of_their_own(sampling):
    filled = {part.get_label(): part for part in sampling.axes[0].collections}
    for value, name in enumerate(CLASSES):
        np.testing.assert_allclose(filled[name].get_facecolors()[0][:3], visible(PALETTE[value] / 255), atol=1e-6)
    shapes = {part.get_paths()[0].vertices.tobytes() for part in filled.values()}
    assert len(shapes) == len(CLASSES)


def test_the_loss_figure_draws_both_runs_with_one_legend():
    data = make_map([made_up_features("a", 0), made_up_features("b", 1)], 10, "sklearn", {})
    with paper_style():
        figure = draw_losses(data, ["CE", "CE and PNE"])
    assert [ax.get_title() for ax in figure.axes] == ["(a) CE", "(b) CE and PNE"]
    assert len(figure.legends) == 1
    for panel, ax in enumerate(figure.axes):
        assert _drawn(ax) == _rows(data, data.panel == panel)


def test_a_pixel_of_both_samples_stands_at_the_same_place_in_both_panels(plane):
    data = replace(plane, xy=plane.xy.copy())
    lone = np.flatnonzero(data.by_label & ~data.by_correct)
    data.xy[lone[0]] = data.xy.max(0) + 50  # far off, in the second panel alone
    with paper_style():
        figure = draw_sampling(data)
        figure.draw_without_rendering()
    first, second = figure.axes
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()
    both = data.xy[data.by_label & data.by_correct]
    places = [ax.transAxes.inverted().transform(ax.transData.transform(both)) for ax in figure.axes]
    np.testing.assert_allclose(*places)
    assert all(((place > 0) & (place < 1)).all() for place in places)
    shapes = [ax.bbox.height / ax.bbox.width for ax in figure.axes]
    np.testing.assert_allclose(*shapes)
    sides = [np.ptp(first.get_xlim()) / first.bbox.width, np.ptp(first.get_ylim()) / first.bbox.height]
    np.testing.assert_allclose(*sides)  # equal scales


def test_no_class_looks_like_the_entry_for_wrong_predictions(sampling):
    assert HOLLOW not in MARKERS
    *classes, hollow = sampling.legends[0].legend_handles
    assert hollow.get_markerfacecolor() == "none"
    assert hollow.get_marker() == HOLLOW
    assert hollow.get_marker() not in [handle.get_marker() for handle in classes]


def _drawn(ax) -> set:
    return {tuple(point) for part in ax.collections for point in np.round(part.get_offsets(), 3).tolist()}


def _rows(data: Map, chosen: np.ndarray) -> set:
    return {tuple(point) for point in np.round(data.xy[chosen].astype(float), 3).tolist()}


def test_a_readers_own_settings_of_matplotlib_do_not_reach_figures() -> None:
    with mpl.rc_context({"text.usetex": True, "image.origin": "lower"}):
        with paper_style():
            assert (mpl.rcParams["text.usetex"], mpl.rcParams["image.origin"]) == (False, "upper")
        assert mpl.rcParams["text.usetex"]
