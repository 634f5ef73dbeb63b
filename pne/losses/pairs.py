"""The pairs of one draw in plain form, for figures and for looking at."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pne.losses.misclassified import MisclassifiedContrast

__all__ = ["PairSample", "sample_pairs"]


@dataclass(frozen=True)
class PairSample:
    """Drawn anchors of a batch, image after image and set after set, without padding.

    Attributes
    ----------
    image : Tensor, shape (A,), int64
        Image of the batch that holds anchor, positives and negatives.
    anchor : Tensor, shape (A,), int64
        Raster index of the anchor in its h x w map.
    predicted, label : Tensor, shape (A,), int64
        The class the anchor was mistaken for, and its true class.
    anchor_count : Tensor, shape (A,), int64
        How often the anchor was drawn.
    positive, negative : Tensor, shape (A, K), int64
        Raster indices; -1 beyond the drawn ones.
    positive_count, negative_count : Tensor, shape (A, K), int64
        How often each was drawn; 0 beyond.
    """

    image: Tensor
    anchor: Tensor
    predicted: Tensor
    label: Tensor
    anchor_count: Tensor
    positive: Tensor
    positive_count: Tensor
    negative: Tensor
    negative_count: Tensor


def sample_pairs(
    loss: MisclassifiedContrast,
    embeddings: Tensor,
    logits: Tensor,
    labels: Tensor,
    ignore_index: int = 255,
    generator: torch.Generator | None = None,
) -> PairSample:
    """List the pairs that `loss` contrasts when called with the same arguments.

    Parameters
    ----------
    loss : PNELoss or AsymmetricContrastLoss
    embeddings, logits, labels, ignore_index
        As for the call of the loss.
    generator : torch.Generator, optional
        In the state in which the loss would find it.

    Returns
    -------
    PairSample
        On the device of the inputs.

    Raises
    ------
    TypeError
        `loss` is not of the kind that contrasts misclassified pixels.
    TypeError, ValueError
        Inputs whose types, shapes or devices do not go together.
    """
    if not isinstance(loss, MisclassifiedContrast):
        raise TypeError(f"expected a PNELoss or AsymmetricContrastLoss; got {type(loss).__name__}")
    draw = loss.draw(embeddings, logits, labels, ignore_index, generator)
    image, place = (draw.anchors.count > 0).nonzero(as_tuple=True)

    def pixels(index: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        index, count = index[image, place], count[image, place]
        return torch.where(count > 0, draw.column[image.unsqueeze(1), index], -1), count

    positive, positive_count = pixels(draw.positive, draw.positive_count)
    negative, negative_count = pixels(draw.negative, draw.negative_count)
    return PairSample(
        image=image,
        anchor=draw.anchors.pixel[image, place],
        predicted=draw.anchors.predicted[image, place],
        label=draw.anchors.label[image, place],
        anchor_count=draw.anchors.count[image, place],
        positive=positive,
        positive_count=positive_count,
        negative=negative,
        negative_count=negative_count,
    )
