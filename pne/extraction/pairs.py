"""The anchors, positives and negatives that the loss of a run draws in one image, for one confusion."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pne.errors import UserError
from pne.extraction.archives import Pairs
from pne.extraction.network import Network
from pne.extraction.selections import ConfusionSelection
from pne.heads.randomness import call_generator
from pne.losses import sample_pairs
from pne.losses.inputs import classify_pixels
from pne.losses.misclassified import MisclassifiedContrast


@torch.no_grad()
def extract_pairs(network: Network, selection: ConfusionSelection) -> Pairs:
    """Let the loss of a run draw its pairs in one image, by its own projection and its own random stream.

    The generator is that of the branch's next call; the network is in evaluation mode.

    Raises
    ------
    UserError
        If the run has no loss that draws pairs, or the confusion does not occur in the feature map.
    """
    branch = network.branch
    if not isinstance(getattr(branch, "loss", None), MisclassifiedContrast):
        raise UserError(
            f"{network.run.run}: its loss draws no pairs; name a row with PNELoss or AsymmetricContrastLoss"
        )
    index = selection.image.index
    pixels = network.look(index)
    embeddings = branch.projection(pixels.features)
    generator = call_generator(branch.seed, 0, int(branch.calls), embeddings.device)
    pairs = sample_pairs(branch.loss, embeddings, pixels.logits, pixels.label, generator=generator)
    true, predicted = selection.true_class, selection.predicted_class
    kinds = classify_pixels(pixels.logits, pixels.label, 255)
    candidates = (kinds.wrong & (kinds.label == true) & (kinds.predicted == predicted))[0].nonzero()[:, 0]

    ours = (pairs.label == true) & (pairs.predicted == predicted)
    if not bool(ours.any()):
        names = network.classes
        raise UserError(
            f"{network.run.run}: the loss draws no anchor of {names[true]} mistaken for {names[predicted]} in image "
            f"{selection.image.name}; select another confusion"
        )
    width = pixels.logits.shape[3]

    def positions(chosen: Tensor) -> NDArray[np.int32]:
        unique = np.unique(chosen[chosen >= 0].cpu().numpy())  # -1 stands for no pixel
        return np.stack([unique // width, unique % width], 1).astype(np.int32)

    image, label, prediction = network.see(index)
    return Pairs(
        about={
            "run": network.run.run,
            "weights_sha256": network.train.weights_sha256,
            "index": index,
            "name": network.name(index),
            "true_class": true,
            "predicted_class": predicted,
            "loss": type(branch.loss).__name__,
        },
        image=image,
        label=label,
        prediction=prediction,
        candidates=positions(candidates),
        anchors=positions(pairs.anchor[ours]),
        positives=positions(pairs.positive[ours]),
        negatives=positions(pairs.negative[ours]),
        grid=np.array(pixels.logits.shape[2:], np.int32),
        classes=np.array(network.classes),
        palette=network.palette,
    )
