"""t-SNE coordinates are deterministic, begin alike, and end up with the right pixels in the plot."""

import importlib.util

import numpy as np
import pytest
from samples import CLASSES, PALETTE, made_up_features

from analysis.figures import tsne
from analysis.figures.scatter import HOLLOW, draw_losses, draw_sampling
from analysis.figures.style import MARKERS, paper_style, visible
from analysis.figures.tsne import Map, embed, initial_positions, map_one, map_two, shared_pixels, thin, unit_rows
from pne.errors import UserError


def test_coordinates_are_the_same_each_time_and_keep_clusters_together():
    features = made_up_features(per_class=25)
    start = initial_positions(unit_rows(features.penultimate))
    first, second = (embed(features.penultimate, start) for _ in range(2))
    assert np.array_equal(first, second)
    centres = np.stack([first[features.label == value].mean(0) for value in range(4)])
    nearest = np.linalg.norm(first[:, None] - centres[None], axis=2).argmin(1)
    assert (nearest == features.label).mean() > 0.8


def test_scaling_the_embeddings_changes_nothing():
    features = made_up_features()
    start = initial_positions(unit_rows(features.penultimate))
    lengths = np.linspace(0.5, 4, len(features.label))[:, None]
    assert np.allclose(unit_rows(features.penultimate * lengths), unit_rows(features.penultimate))
    np.testing.assert_allclose(start[:, 0].std(), 1e-4)


def test_opentsne_is_optional():
    features = made_up_features()
    start = initial_positions(unit_rows(features.penultimate))
    if importlib.util.find_spec("openTSNE") is None:
        with pytest.raises(UserError, match="pip install openTSNE"):
            embed(features.penultimate, start, "opentsne")
    else:
        assert embed(features.penultimate, start, "opentsne").shape == (len(features.label), 2)
    with pytest.raises(UserError, match="allowed: sklearn, opentsne"):
        embed(features.penultimate, start, "umap")


def test_too_few_pixels_are_a_clear_error():
    with pytest.raises(UserError, match="at least 5 pixels"):
        embed(np.eye(4), np.zeros((4, 2)))


def test_thinning_keeps_the_first_pixels_of_each_class_of_both_samples():
    features = made_up_features()
    thinned = thin(features, 4)
    for value in range(4):
        for name in ("by_label", "by_correct"):
            rows = np.flatnonzero(getattr(features, name) & (features.label == value))[:4]
            kept = thinned.penultimate[getattr(thinned, name) & (thinned.label == value)]
            assert np.array_equal(kept, features.penultimate[rows])


def test_two_runs_show_the_same_pixels_whatever_their_order():
    one, two = made_up_features("one", 0), made_up_features("two", 1)
    shuffled = two.select(np.random.default_rng(0).permutation(len(two.label)))
    first, second = shared_pixels(one, shuffled)
    for field in ("label", "image", "position"):
        assert np.array_equal(getattr(first, field), getattr(second, field))
    assert len(first.label) == one.by_label.sum()
    two.position[:] += 100
    with pytest.raises(UserError, match="share no pixel"):
        shared_pixels(one, two)


def test_a_map_survives_its_file(tmp_path):
    data = map_one(made_up_features(), 10, "sklearn", {"figure": "x"})
    data.write(tmp_path / "map.npz")
    again = Map.read(tmp_path / "map.npz")
    assert np.array_equal(again.xy, data.xy)
    assert again.about == data.about


def test_the_sampling_figure_draws_each_sample_in_its_panel():
    data = map_one(made_up_features(), 10, "sklearn", {})
    with paper_style():
        figure = draw_sampling(data)
    correct, by_label = figure.axes
    assert _drawn(correct) == _rows(data, data.by_correct)
    assert _drawn(by_label) == _rows(data, data.by_label)
    assert not any("wrong" in part.get_label() for part in correct.collections)
    wrong = [part for part in by_label.collections if "wrong" in part.get_label()]
    assert sum(len(part.get_offsets()) for part in wrong) == (data.by_label & (data.label != data.prediction)).sum()
    assert all(len(part.get_facecolors()) == 0 for part in wrong)  # hollow
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [*CLASSES, "hollow: predicted wrongly"]


def test_classes_have_the_palettes_colours_and_shapes_of_their_own():
    data = map_one(made_up_features(), 10, "sklearn", {})
    with paper_style():
        figure = draw_sampling(data)
    filled = {part.get_label(): part for part in figure.axes[0].collections}
    for value, name in enumerate(CLASSES):
        np.testing.assert_allclose(filled[name].get_facecolors()[0][:3], visible(PALETTE[value] / 255), atol=1e-6)
    shapes = {part.get_paths()[0].vertices.tobytes() for part in filled.values()}
    assert len(shapes) == len(CLASSES)


def test_the_loss_figure_draws_both_runs_with_one_legend():
    data = map_two(made_up_features("a", 0), made_up_features("b", 1), 10, "sklearn", {})
    with paper_style():
        figure = draw_losses(data, ["CE", "CE and PNE"])
    assert [ax.get_title() for ax in figure.axes] == ["(a) CE", "(b) CE and PNE"]
    assert len(figure.legends) == 1
    for panel, ax in enumerate(figure.axes):
        assert _drawn(ax) == _rows(data, data.panel == panel)


def test_a_pixel_of_both_samples_stands_at_the_same_place_in_both_panels():
    data = map_one(made_up_features(), 10, "sklearn", {})
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


def test_no_class_looks_like_the_entry_for_wrong_predictions():
    assert HOLLOW not in MARKERS
    data = map_one(made_up_features(), 10, "sklearn", {})
    with paper_style():
        figure = draw_sampling(data)
    *classes, hollow = figure.legends[0].legend_handles
    assert hollow.get_markerfacecolor() == "none"
    assert hollow.get_marker() == HOLLOW
    assert hollow.get_marker() not in [handle.get_marker() for handle in classes]


@pytest.mark.parametrize("shuffle", [False, True])
def test_both_runs_begin_at_the_same_places_and_show_the_same_pixels(monkeypatch, shuffle):
    one, two = made_up_features("a", 0), made_up_features("b", 1)
    if shuffle:
        two = two.select(np.random.default_rng(0).permutation(len(two.label)))
    calls = []
    original = tsne.embed
    monkeypatch.setattr(tsne, "embed", lambda x, start, *rest: calls.append((x, start)) or original(x, start, *rest))
    data = map_two(one, two, 100, "sklearn", {})
    (first, first_start), (second, second_start) = calls
    assert np.array_equal(first_start, second_start)
    assert np.array_equal(first_start, initial_positions(unit_rows(first)))
    assert not np.allclose(first_start, initial_positions(unit_rows(second)))

    def pixels(features, penultimate) -> list[tuple[int, ...]]:
        """Image and position of the pixels that the given rows belong to."""
        known = {
            row.tobytes(): tuple(map(int, (image, *position)))
            for row, image, position in zip(features.penultimate, features.image, features.position, strict=True)
        }
        return [known[row.tobytes()] for row in penultimate]

    assert pixels(one, first) == pixels(two, second)
    assert len(first) == one.by_label.sum()
    assert np.array_equal(data.label[data.panel == 0], data.label[data.panel == 1])
    np.testing.assert_array_equal(data.xy[data.panel == 0], original(first, first_start))


def _drawn(ax) -> set:
    return {tuple(point) for part in ax.collections for point in np.round(part.get_offsets(), 3).tolist()}


def _rows(data: Map, chosen: np.ndarray) -> set:
    return {tuple(point) for point in np.round(data.xy[chosen].astype(float), 3).tolist()}
