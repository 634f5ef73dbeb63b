"""What figures show of images: predictions, and the pixels that the loss of a run draws for one confusion."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pne.errors import UserError
from pne.extract.archives import ConfusionSelection, Pairs, Predictions
from pne.extract.network import Network
from pne.heads.branch import call_generator
from pne.losses import sample_pairs
from pne.losses.pairs import MisclassifiedContrast
from pne.losses.pixels import classify_pixels

ENOUGH = 5  # anchors that make a picture
RANKED = f"Shown is the first of them of which the loss draws at least {ENOUGH} anchors in the feature map."
MOST = (
    f"Of none of them the loss draws {ENOUGH} anchors in the feature map, so that the confusion and image are shown of "
    "which it draws the most, over all evaluated images."
)
NONE = "The loss draws no pair in any evaluated image."


@dataclass(frozen=True)
class Drawn:
    """What a loss draws for one confusion in one image: distinct cells of the feature map, by raster index."""

    true: int
    predicted: int
    candidates: NDArray[np.int64]
    anchors: NDArray[np.int64]
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]

    @property
    def complete(self) -> bool:
        """Whether there is an anchor, a positive and a negative."""
        return min(len(self.anchors), len(self.positives), len(self.negatives)) > 0


@dataclass(frozen=True)
class ImageDraw:
    """The confusions of one image of which a loss draws pairs, by (true, predicted) class, and the cells behind."""

    confusions: dict[tuple[int, int], Drawn]
    prediction: NDArray[np.uint8]  # (h, w)
    extent: tuple[int, int]  # of the label with padding


@torch.no_grad()
def draw_image(network: Network, index: int) -> ImageDraw:
    """Let the loss of a run draw its pairs in one image, by its own projection and its own random stream.

    The generator is that of the branch's next call; the network is in evaluation mode.
    """
    branch, pixels = network.branch, network.look(index)
    embeddings = branch.projection(pixels.tapped)
    generator = call_generator(branch.seed, 0, int(branch.calls), embeddings.device)
    pairs = sample_pairs(branch.loss, embeddings, pixels.logits, pixels.label, generator=generator)
    kinds = classify_pixels(pixels.logits, pixels.label, 255)
    label, predicted = (part[0].cpu().numpy() for part in (kinds.label, kinds.predicted))
    wrong = kinds.wrong[0].cpu().numpy()
    anchor, positive, negative = (part.cpu().numpy() for part in (pairs.anchor, pairs.positive, pairs.negative))

    def distinct(chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.unique(chosen[chosen >= 0])  # -1 stands for no pixel

    found = {}
    for true, mistaken in sorted(set(zip(label[anchor].tolist(), predicted[anchor].tolist(), strict=True))):
        ours = (label[anchor] == true) & (predicted[anchor] == mistaken)
        candidates = np.flatnonzero(wrong & (label == true) & (predicted == mistaken))
        drawn = Drawn(true, mistaken, candidates, *(distinct(part[ours]) for part in (anchor, positive, negative)))
        if drawn.complete:
            found[true, mistaken] = drawn
    shape = tuple(pixels.logits.shape[2:])
    return ImageDraw(found, predicted.reshape(shape).astype(np.uint8), tuple(pixels.label.shape[1:]))


def choose_drawn(
    network: Network, ranked: Iterable[tuple[int, int, int]], images: Iterable[int]
) -> tuple[int, Drawn | None, str]:
    """Choose the image and confusion to show.

    Parameters
    ----------
    network : Network
    ranked : iterable of (image, true class, predicted class)
        In the order of preference.
    images : iterable of int
        Where to look if the loss draws few anchors, or none, of all these.

    Returns
    -------
    int, Drawn or None, str
        The image, what is drawn in it, and how it was chosen, a sentence. None: nothing is drawn anywhere.
    """
    known: dict[int, ImageDraw] = {}
    for index, true, predicted in ranked:
        if index not in known:
            known[index] = draw_image(network, index)
        drawn = known[index].confusions.get((true, predicted))
        if drawn is not None and len(drawn.anchors) >= ENOUGH:
            return index, drawn, RANKED

    def everything() -> Iterator[tuple[int, Drawn]]:
        for index in images:
            draw = known[index] if index in known else draw_image(network, index)
            yield from ((index, drawn) for drawn in draw.confusions.values())

    index, drawn = max(everything(), key=lambda pair: len(pair[1].anchors), default=(0, None))  # the first of equals
    return index, drawn, NONE if drawn is None else MOST


def extract_pairs(network: Network, selection: ConfusionSelection) -> Pairs:
    """Store the pairs of the first selected confusion of which the loss draws enough anchors, else of most anchors.

    Where the loss draws no pair in any image, the first image is stored without any.

    Raises
    ------
    UserError
        If the run has no loss that draws pairs, or the selection names an image that the split lacks.
    """
    if not isinstance(getattr(network.branch, "loss", None), MisclassifiedContrast):
        raise UserError(f"{network.run.run}: its loss draws no pairs; name a row of PNELoss or AsymmetricContrastLoss")
    ranked = [(one.image.index, one.true_class, one.predicted_class) for one in selection.confusions]
    network.check_images(index for index, *_ in ranked)
    index, drawn, choice = choose_drawn(network, ranked, range(len(network.dataset)))
    draw = draw_image(network, index)
    width = draw.prediction.shape[1]

    def positions(name: str) -> NDArray[np.int32]:
        chosen = np.empty(0, np.int64) if drawn is None else getattr(drawn, name)
        return np.stack([chosen // width, chosen % width], 1).astype(np.int32)

    image, label, _ = network.see(index)
    return Pairs(
        about={
            **network.about,
            "index": index,
            "name": network.name(index),
            "true_class": None if drawn is None else drawn.true,
            "predicted_class": None if drawn is None else drawn.predicted,
            "choice": choice,
            "loss": type(network.branch.loss).__name__,
        },
        image=image,
        label=label,
        prediction=draw.prediction,
        extent=np.array(draw.extent, np.int32),
        **{name: positions(name) for name in ("candidates", "anchors", "positives", "negatives")},
        **network.metainfo,
    )


def extract_predictions(network: Network, indices: Sequence[int]) -> Predictions:
    """Predict the images at the given positions of the evaluated split, single-scale, at the size of their labels.

    Raises
    ------
    UserError
        If there is no such image.
    """
    network.check_images(indices)
    parts = [network.see(index) for index in indices]
    sizes = np.array([label.shape for _, label, _ in parts], np.int32)
    height, width = sizes.max(0)
    shape = (len(parts), height, width)
    image = np.full((*shape, 3), 255, np.uint8)
    label, prediction = np.full(shape, 255, np.uint8), np.full(shape, 255, np.uint8)
    for row, (one_image, one_label, one_prediction) in enumerate(parts):
        area = np.s_[row, : sizes[row, 0], : sizes[row, 1]]
        image[area], label[area], prediction[area] = one_image, one_label, one_prediction
    return Predictions(
        about=network.about,
        image=image,
        label=label,
        prediction=prediction,
        size=sizes,
        index=np.array(indices, np.int32),
        names=np.array([network.name(index) for index in indices]),
        **network.metainfo,
    )
