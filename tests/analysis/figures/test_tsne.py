"""t-SNE coordinates are deterministic, begin alike, and end up with the right pixels in the plot."""

import importlib.util

import numpy as np
import pytest
from samples import made_up_features

from analysis.figures import tsne
from analysis.figures.tsne import Map, embed, initial_positions, make_map, shared_pixels, thin, unit_rows
from pne.errors import UserError

FEATURES = made_up_features()


def test_coordinates_are_the_same_each_time_and_keep_clusters_together():
    features = made_up_features(per_class=25)
    start = initial_positions(unit_rows(features.penultimate))
    first, second = (embed(features.penultimate, start) for _ in range(2))
    assert np.array_equal(first, second)
    centres = np.stack([first[features.label == value].mean(0) for value in range(4)])
    nearest = np.linalg.norm(first[:, None] - centres[None], axis=2).argmin(1)
    assert (nearest == features.label).mean() > 0.8


def test_scaling_the_embeddings_changes_nothing_and_points_begin_at_the_usual_scale():
    lengths = np.linspace(0.5, 4, len(FEATURES.label))[:, None]
    assert np.allclose(unit_rows(FEATURES.penultimate * lengths), unit_rows(FEATURES.penultimate))
    assert initial_positions(unit_rows(FEATURES.penultimate))[:, 0].std() == pytest.approx(1e-4)


def test_opentsne_is_optional():
    start = initial_positions(unit_rows(FEATURES.penultimate))
    if importlib.util.find_spec("openTSNE") is None:
        with pytest.raises(UserError, match="pip install openTSNE"):
            embed(FEATURES.penultimate, start, "opentsne")
    else:
        assert embed(FEATURES.penultimate, start, "opentsne").shape == (len(FEATURES.label), 2)
    with pytest.raises(UserError, match="allowed: sklearn, opentsne"):
        embed(FEATURES.penultimate, start, "umap")


def test_too_few_pixels_are_a_clear_error():
    with pytest.raises(UserError, match="at least 5 pixels"):
        embed(np.eye(4), np.zeros((4, 2)))


def test_thinning_keeps_the_first_pixels_of_each_class_of_both_samples():
    thinned = thin(FEATURES, 4)
    for value in range(4):
        for name in ("by_label", "by_correct"):
            rows = np.flatnonzero(getattr(FEATURES, name) & (FEATURES.label == value))[:4]
            kept = thinned.penultimate[getattr(thinned, name) & (thinned.label == value)]
            assert np.array_equal(kept, FEATURES.penultimate[rows])


def test_runs_without_a_common_pixel_are_refused():
    two = made_up_features("two", 1)
    two.position[:] += 100
    with pytest.raises(UserError, match="share no pixel"):
        shared_pixels(FEATURES, two)


@pytest.mark.parametrize("shuffle", [False, True])
def test_both_runs_begin_at_the_same_places_and_show_the_same_pixels(monkeypatch, tmp_path, shuffle):
    one, two = made_up_features("a", 0), made_up_features("b", 1)
    if shuffle:
        two = two.select(np.random.default_rng(0).permutation(len(two.label)))
    calls = []
    original = tsne.embed
    monkeypatch.setattr(tsne, "embed", lambda x, start, *rest: calls.append((x, start)) or original(x, start, *rest))
    make_map([one, two], 100, "sklearn", {"figure": "x"}).write(tmp_path / "map.npz")
    data = Map.read(tmp_path / "map.npz")
    assert (data.about["figure"], data.about["method"]) == ("x", "sklearn")
    (first, first_start), (second, second_start) = calls
    assert np.array_equal(first_start, second_start)
    assert np.array_equal(first_start, initial_positions(unit_rows(first)))
    assert not np.allclose(first_start, initial_positions(unit_rows(second)))
    make_map([one, two], 100, "sklearn", {}, own_starts=True)
    for x, start in calls[2:]:
        assert np.array_equal(start, initial_positions(unit_rows(x)))

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
