"""The pairs of a figure are those that the loss of a really trained run draws, at the labels that it reads."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import CLASSES, PNE, draw_images, train_run

from analysis.figures.panels import draw_pairs
from analysis.figures.selection import select_confusions
from analysis.figures.style import paper_style
from pne.counts import read_confusion
from pne.errors import UserError
from pne.extract import __main__ as extract
from pne.extract.archives import ChosenImage, Confusion, ConfusionSelection, Pairs, write_selection
from pne.extract.images import ENOUGH, MOST, NONE, RANKED, draw_image, extract_pairs
from pne.extract.network import Network
from pne.losses import pairs as loss_pairs

ITERATIONS = 30


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run with PNE; few positives and negatives are drawn, so that chance decides which."""
    folder = tmp_path_factory.mktemp("pairs")
    # The side lengths of the labels are no multiples of the cells', so that a cell's centre is not its label pixel.
    data = draw_images(folder / "data" / "street", train=8, test=5, size=(52, 75))
    contrast = {"loss": {**PNE, "num_samples": 2}, "weight": 1.3, "projection": {"channels": 12}}
    return train_run(folder, data, "pne", iterations=ITERATIONS, contrast=contrast)


@pytest.fixture
def network(spec: Path) -> Network:
    return Network(spec)


@pytest.fixture
def drawn(network: Network) -> list[tuple[int, int, int, int]]:
    """Anchors, image, true and predicted class of everything that the loss draws, most anchors first."""
    images = {index: draw_image(network, index).confusions for index in range(len(network.dataset))}
    found = [(len(one.anchors), index, *pair) for index, of in images.items() for pair, one in of.items()]
    return sorted(found, reverse=True)


def select(*confusions: tuple[int, int, int]) -> ConfusionSelection:
    chosen = []
    for index, true, predicted in confusions:
        image = ChosenImage(index=index, name=f"{index:03d}", reason="-")
        chosen.append(Confusion(image=image, true_class=true, predicted_class=predicted, pixels=9))
    return ConfusionSelection(rule="-", confusions=chosen)


def test_the_label_and_the_prediction_of_every_cell_are_the_classes_of_the_confusion(network, drawn, spec, tmp_path):
    anchors, *confusion = drawn[0]
    assert anchors >= ENOUGH
    write_selection(tmp_path / "selection.json", select(tuple(confusion)))
    arguments = ["--pairs", str(tmp_path / "selection.json"), "--out", str(tmp_path)]
    assert extract.main([str(spec), *arguments]) == 0
    pairs = Pairs.read(tmp_path / "pne.npz")
    index, true, predicted = confusion
    assert np.array_equal(pairs.label, network.see(index)[1])
    assert np.array_equal(pairs.palette, network.metainfo["palette"])
    assert np.array_equal(pairs.prediction, network.look(index).logits[0].argmax(0))
    expected = (
        (pairs.anchors, (true, predicted)),
        (pairs.positives, (true, true)),
        (pairs.negatives, (predicted,) * 2),
    )
    for cells, classes in expected:
        assert set(zip(pairs.true_classes(cells), pairs.predicted_classes(cells), strict=True)) == {classes}
    assert pairs.prediction.shape != pairs.label.shape


def test_the_pairs_are_the_branchs_own_next_draw(network, drawn, monkeypatch):
    _, *confusion = drawn[0]
    index, true, predicted = confusion
    pairs = extract_pairs(network, select(tuple(confusion)))
    draws = []
    original = loss_pairs.draw_pairs
    monkeypatch.setattr(loss_pairs, "draw_pairs", lambda *a, **k: draws.append(original(*a, **k)) or draws[-1])
    pixels, branch = network.look(index), network.branch
    assert int(branch.calls) == branch._calls == ITERATIONS  # it goes on where the training ended
    with torch.no_grad():
        branch(pixels.features, pixels.logits, pixels.label)
    [draw] = draws
    anchors = draw.anchors
    ours = (anchors.count > 0) & (anchors.label == true) & (anchors.predicted == predicted)
    expected = [anchors.pixel[ours]]
    for kind in (0, 1):  # positives, negatives
        expected.append(draw.column[0][draw.index[ours][:, kind]][draw.count[ours][:, kind] > 0])
    for cells, pixels in zip((pairs.anchors, pairs.positives, pairs.negatives), expected, strict=True):
        assert set((cells @ (pairs.prediction.shape[1], 1)).tolist()) == set(pixels.tolist())


def test_a_projection_of_the_backbone_takes_the_input_of_the_head(network):
    maps = []
    network.model.backbone.register_forward_hook(lambda _, inputs, output: maps.append(output))
    assert network.look(0).tapped is not maps[0][network.head.in_index]
    network.branch.projection.taps = "backbone"
    tapped = network.look(0).tapped
    assert torch.equal(tapped, maps[1][network.head.in_index])


def test_the_first_ranked_confusion_with_enough_anchors_is_shown(network, drawn):
    few = next(one[1:] for one in drawn if one[0] < ENOUGH)
    enough = [one[1:] for one in drawn if one[0] >= ENOUGH]
    chosen = enough[-1]  # not the one of most anchors
    pairs = extract_pairs(network, select(few, (chosen[0], chosen[1], chosen[1]), chosen, enough[0]))
    assert (pairs.about["index"], pairs.about["true_class"], pairs.about["predicted_class"]) == chosen
    assert pairs.about["choice"] == RANKED


@pytest.mark.parametrize("ranked", [True, False])
def test_where_no_ranked_confusion_has_enough_anchors_the_one_of_most_is_shown(network, drawn, ranked):
    few = [one[1:] for one in drawn if one[0] < ENOUGH][:2] if ranked else []
    pairs = extract_pairs(network, select(*few))
    assert len(pairs.anchors) == drawn[0][0]
    assert pairs.about["choice"] == MOST


def test_where_the_loss_draws_nothing_the_figure_says_so(network):
    with torch.no_grad():
        network.head.conv_seg.weight.zero_()
        network.head.conv_seg.bias.copy_(torch.arange(CLASSES, 0, -1))  # every cell is of class 0: nothing to confuse
    pairs = extract_pairs(network, select((0, 1, 0)))
    assert (pairs.about["choice"], pairs.about["true_class"]) == (NONE, None)
    assert not len(pairs.anchors) + len(pairs.positives) + len(pairs.negatives)
    with paper_style():
        figure = draw_pairs(pairs)
    assert figure.get_suptitle() == NONE


def test_an_image_that_the_split_lacks_is_a_clear_error(network):
    with pytest.raises(UserError, match="no image 5; the evaluated split has 5"):
        extract_pairs(network, select((5, 0, 1)))


def test_the_ranking_by_counts_leads_to_pairs(network, spec):
    selection = select_confusions(read_confusion(spec.parent / "single_scale.confusion.npz"))
    assert len(extract_pairs(network, selection).anchors) > 0
