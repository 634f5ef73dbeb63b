"""Sweeps, curves and changes of IoU: the drawn numbers are the given ones."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from analysis.figures.plots import (
    about_sweep,
    axis_limits,
    draw_changes,
    draw_curves,
    draw_sweeps,
    gather_curves,
    group_names,
    iou_changes,
    is_cut,
    largest_changes,
    read_history,
    sweep_values,
    tick_labels,
)
from analysis.figures.style import GAIN, LOSS, paper_style
from analysis.uncertainty import ClassCounts
from pne.errors import UserError
from pne.spec.schema import Published


def row(label: str, group: str, published: float, *runs: str) -> SimpleNamespace:
    cells = {"miou": Published(value=published)}
    declaration = SimpleNamespace(label=label, group=group, published=cells)
    return SimpleNamespace(declaration=declaration, runs=dict(enumerate(runs)))


ROWS = (
    row("0.1", "temperature", 4.2, "r0", "r1"),
    row("1", "temperature", 80.3, "r2", "r3"),
    row("2", "temperature", 80.0, "r4"),
    row("10", "temperature", 79.3, "missing"),
    row("1.3", "alpha", 80.3, "r2"),
)
GROUPS = {"temperature": r"$\tau$", "alpha": r"$\alpha$"}
NAMES = group_names(SimpleNamespace(declaration=SimpleNamespace(groups=GROUPS)))
MIOU = {"r0": 20.0, "r1": 24.0, "r2": 30.0, "r3": 31.0, "r4": 29.0}


def test_a_sweep_has_means_and_spans_over_seeds_and_leaves_missing_runs_out():
    points = sweep_values(ROWS, MIOU).set_index(["group", "side", "x"])
    assert points.loc[("temperature", "measured", 0.1), ["value", "low", "high", "seeds"]].tolist() == [22, 20, 24, 2]
    assert points.loc[("temperature", "published", 0.1), "value"] == 4.2
    assert ("temperature", "measured", 10.0) not in points.index
    assert points.loc[("temperature", "published", 10.0), "value"] == 79.3


@pytest.mark.parametrize("comparable", [True, False])
def test_the_drawn_sweep_holds_the_points_and_marks_what_is_off_the_scale(comparable):
    with paper_style():
        figure = draw_sweeps(sweep_values(ROWS, MIOU), NAMES, comparable)
    axes = np.array(figure.axes).reshape(-1, 2)
    assert len(axes) == (1 if comparable else 2)
    assert axes[-1, 0].get_xlabel() == "temperature τ"
    assert axes[-1, 1].get_xlabel() == "weight α"
    for ax, expected in ((axes[0, 0], {(1, 80.3), (2, 80), (10, 79.3)}), (axes[-1, 0], {(1, 30.5), (2, 29)})):
        assert expected <= {tuple(xy) for line in ax.lines for xy in np.asarray(line.get_xydata()).tolist()}
    if not comparable:  # beside the measured 20 to 30 it is no outlier
        assert "4.2" in [text.get_text() for text in axes[0, 0].texts]


@pytest.mark.parametrize(
    ("points", "least", "most", "ceiling"),
    [
        ((79.2, 79.4, 80.3), -np.inf, 79.2, 80.3),
        ((4.2, 79.3, 79.7, 80.1, 80.3), 4.2, 79.3, 80.3),  # a collapse is left out
        ((20.0, 30.0), -np.inf, 20, 30),
        (((30.0, 24.0, 33.0), (31.0, 30.0, 38.0)), -np.inf, 24, 38),
        ((4.2, (79.3, 70.0, 81.0), 79.7, 80.1, 80.3), 4.2, 70, 81),
        # One seed of a point collapsed: its bar reaches further down than the point that would be off the scale.
        (((40.0, 39.0, 41.0), (79.3, 10.0, 81.0), 79.7, 80.1, 80.3), -np.inf, 10, 81),
    ],
)
def test_limits_hold_everything_with_its_bar_but_a_collapse(points, least, most, ceiling):
    """Points by value, or by value, low and high."""
    rows = [point if isinstance(point, tuple) else (point,) * 3 for point in points]
    low, high = axis_limits(pd.DataFrame(rows, columns=["value", "low", "high"]))
    assert least < low < most
    assert high > ceiling


@pytest.mark.parametrize("comparable", [True, False])
def test_no_bar_of_several_seeds_is_cut_and_no_line_crosses_the_legend(comparable):
    rows = [
        SimpleNamespace(declaration=one.declaration, runs={s: (n, s) for s in range(3)}) for n, one in enumerate(ROWS)
    ]
    miou = {(n, s): 75.0 + 6 * n + 2 * s for n in range(5) for s in range(3)} | {(0, 0): 60.0, (1, 2): 99.0}
    with paper_style():
        figure = draw_sweeps(sweep_values(rows, miou), NAMES, comparable)
        figure.draw_without_rendering()
    bars = 0
    for ax in figure.axes:
        floor, ceiling = ax.get_ylim()
        for container in ax.containers:
            for bar in container.lines[2]:
                ends = np.concatenate(bar.get_segments())[:, 1]
                assert floor < ends.min() <= ends.max() < ceiling
                bars += len(bar.get_segments())
    assert bars >= 5
    assert len(figure.legends) == comparable
    assert not any(ax.get_legend() for ax in figure.axes)
    for legend in figure.legends:
        assert [text.get_text() for text in legend.get_texts()] == ["published", "measured"]
        assert not any(legend.get_window_extent().overlaps(ax.bbox) for ax in figure.axes)


def test_values_off_the_scale_of_two_lines_stand_apart():
    points = sweep_values(ROWS, {"r0": 5.0, "r1": 5.2, "r2": 80.1, "r4": 79.9, "missing": 79.2})
    assert is_cut(points, True)
    with paper_style():
        figure = draw_sweeps(points, NAMES, True)
        figure.draw_without_rendering()
    notes = [text for ax in figure.axes for text in ax.texts]
    assert [text.get_text() for text in notes] == ["4.2", "5.1"]
    assert not notes[0].get_window_extent().overlaps(notes[1].get_window_extent())
    assert not is_cut(points[points["value"] > 10], True)


def test_a_caption_explains_bars_and_arrows_only_where_they_are():
    assert about_sweep(sweep_values(ROWS, MIOU), False) == {"bars": True, "cut": True}
    one_seed = sweep_values(ROWS, {run: MIOU[run] for run in ("r0", "r2", "r4")})
    assert one_seed["seeds"].max() == 1
    published = one_seed[(one_seed["value"] > 10) & (one_seed["side"] == "published")]
    for comparable in (False, True):
        assert about_sweep(published, comparable) == {"bars": False, "cut": False}


def test_close_ticks_go_to_a_second_line():
    assert tick_labels([0.1, 0.3, 0.6, 0.9, 1, 2, 5, 10], True)[3:5] == ["0.9", "\n1"]
    assert tick_labels([1, 2, 3], False) == ["1", "2", "3"]


def test_an_unmeasured_sweep_says_so():
    with paper_style():
        figure = draw_sweeps(sweep_values(ROWS, {}), NAMES, False)
    assert "not measured yet" in [text.get_text() for ax in figure.axes for text in ax.texts]


def test_curves_are_means_over_seeds_with_their_span(tmp_path):
    def history(name: str, offset: float, **scalars: float) -> pd.DataFrame:
        losses = {"decode.loss_ce": [10 + offset, 20 + offset], "aux.loss_ce": -1, "lr": 0.1}
        lines = pd.DataFrame({"iter": [10, 20], **losses, **scalars})
        lines.to_json(tmp_path / name, orient="records", lines=True)
        return read_history(tmp_path / name)

    contrast = {"contrast_anchors": 100, "contrast_weight_std": 0.0}
    histories = {
        "PNE": [history(f"{seed}", seed, loss_contrast=2 + seed, **contrast) for seed in (0, 1)],
        "Cross entropy": [history("base", 5)],
    }
    curves = gather_curves(histories)
    assert set(curves["row"]) == {"PNE", "Cross entropy"}
    value = curves.set_index(["row", "scalar", "iter"]).loc[("PNE", "loss_ce", 20)]
    assert value[["value", "low", "high"]].tolist() == [20.5, 20, 21]
    with paper_style():
        figure = draw_curves(curves, list(histories))
    axes = {ax.get_title(): ax for ax in figure.axes}
    assert len(axes["cross entropy"].lines) == 2
    assert axes["cross entropy"].lines[0].get_ydata().tolist() == [10.5, 20.5]
    assert len(axes["contrastive loss"].lines) == 1
    assert [len(axes["contrastive loss"].collections), len(axes["anchors per iteration"].collections)] == [1, 0]
    assert not axes["standard deviation of the weights"].lines  # it is 0 all along
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["PNE", "Cross entropy"]


def test_the_last_head_of_a_cascade_gives_the_cross_entropy(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"iter": 1, "decode_0.loss_ce": 3.0, "decode_1.loss_ce": 2.0, "aux.loss_ce": 9.0}\n')
    assert read_history(path)["loss_ce"].tolist() == [2.0]


@pytest.mark.parametrize(("text", "message"), [(None, "no history"), ("", "is empty"), ("{", "not readable")])
def test_unusable_histories_are_clear_errors(tmp_path, text, message):
    path = tmp_path / "history.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_history(path)


def counts(hits: list[list[int]], labelled: list[list[int]]) -> ClassCounts:
    names = tuple(map(str, range(len(hits))))
    return ClassCounts(np.array(hits), np.array(labelled), np.array(labelled), names)


def test_one_seed_shows_what_other_images_would_give_and_is_sure_of_nothing():
    images = 30
    labelled = [[100, 100, 0]] * images
    noise = np.random.default_rng(0).integers(-20, 21, images)
    base = counts([[50, 50, 0]] * images, labelled)
    ours = counts([[60, 50 + n, 0] for n in noise], labelled)
    changes = iou_changes([base], [ours], ["sure", "unsure", "absent"], "ade20k")
    assert changes["class"].tolist() == ["sure", "unsure"]
    sure, unsure = changes.iloc[0], changes.iloc[1]
    assert sure["change"] == pytest.approx(100 * (60 / 140 - 50 / 150))
    assert sure["low"] == pytest.approx(sure["change"])
    assert unsure["low"] < 0 < unsure["high"]
    assert sure["ours"] - sure["baseline"] == pytest.approx(sure["change"])
    assert not changes["certain"].any()


def test_three_seeds_decide_after_holm_over_the_classes():
    labelled = [[100, 100, 100]] * 8
    base = [counts([[50, 50, 50]] * 8, labelled)] * 3
    hits = [(60, 60, 50), (61, 62, 40), (62, 67, 60)]
    changes = iou_changes(base, [counts([one] * 8, labelled) for one in hits], ["a", "b", "c"], "ade20k")
    paired = np.array([[100 * (hit / (200 - hit) - 50 / 150) for hit in one] for one in hits])
    expected = ttest_1samp(paired, 0)
    ends = expected.confidence_interval(0.95)
    np.testing.assert_allclose(changes[["change", "low", "high"]].T, [paired.mean(0), ends.low, ends.high])
    assert (expected.pvalue <= 0.05).tolist() == [True, True, False]
    assert changes["certain"].tolist() == [True, bool(2 * expected.pvalue[1] <= 0.05), False]
    assert 2 * expected.pvalue[1] > 0.05  # without Holm it would be called certain


def test_different_images_are_refused():
    one = counts([[5]], [[10]])
    other = ClassCounts(one.hits, one.labelled, one.predicted, ("other",))
    with pytest.raises(UserError, match="different images"):
        iou_changes([one], [other], ["a"], "ade20k")


def test_the_largest_changes_are_drawn_in_order_with_their_colours():
    changes = pd.DataFrame(
        {
            "class": ["a", "b", "c"],
            "change": [0.1, -4.0, 3.0],
            "low": [-1.0, -5.0, 2.0],
            "high": [1.0, -3.0, 4.0],
            "certain": [False, True, True],
        }
    )
    chosen = largest_changes(changes, most=2)
    assert chosen["class"].tolist() == ["c", "b"]
    with paper_style():
        ax = draw_changes([("data", largest_changes(changes))]).axes[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["c", "a", "b"]
    assert [bar.get_width() for bar in ax.patches] == [3.0, 0.1, -4.0]
    import matplotlib.colors as colours

    assert [colours.to_hex(bar.get_facecolor()) for bar in ax.patches] == [c.lower() for c in (GAIN, GAIN, LOSS)]
    assert [bar.get_alpha() for bar in ax.patches] == [1, 0.35, 1]
