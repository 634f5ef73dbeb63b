"""Contrast of misclassified with correct pixels: the base of its losses, and the pairs of a draw in plain form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pne.losses.base import ContrastLoss, check_inputs
from pne.losses.draw import Draw, draw_pairs
from pne.losses.similarity import gather_pixels, normalise, pair_cosines

__all__ = ["MisclassifiedContrast", "PairCosines", "PairSample", "sample_pairs"]


@dataclass(frozen=True)
class PairCosines:
    """Cosines of the drawn anchors to their positives and negatives.

    Attributes
    ----------
    positive, negative : Tensor, shape (B, A, K), at least float32
    positive_count, negative_count : Tensor, shape (B, A, K), int64
        How often each counts; 0 for padding, of which the cosines are finite and mean nothing.
    anchor_count : Tensor, shape (B, A), int64
        How often the anchor counts; 0 for padding.
    weight : Tensor, shape (B, A, K), same dtype, or None
        Weights of the positives, > 0.
    """

    positive: Tensor
    negative: Tensor
    positive_count: Tensor
    negative_count: Tensor
    anchor_count: Tensor
    weight: Tensor | None

    def anchor_mean(self, values: Tensor) -> Tensor:
        """Average values (B, A) over the drawn anchors of the batch; 0 where there are none."""
        return (values * self.anchor_count).sum() / self.anchor_count.sum().clamp(min=1)


class MisclassifiedContrast(ContrastLoss):
    """Draws the pairs and computes their cosines, of which a subclass computes the loss.

    The scope is one image: anchors, positives and negatives of a pair are pixels of the same image.
    """

    def draw(
        self,
        embeddings: Tensor,
        logits: Tensor,
        labels: Tensor,
        ignore_index: int = 255,
        generator: torch.Generator | None = None,
    ) -> Draw:
        """Draw the pairs that a call with the same arguments, and the generator in the same state, contrasts."""
        check_inputs(embeddings, logits, labels, ignore_index, generator)
        with torch.autocast(embeddings.device.type, enabled=False):  # as a call: rounding matters
            return draw_pairs(embeddings, logits, labels, self.options, ignore_index, generator)

    def _contrast(
        self,
        embeddings: Tensor,
        logits: Tensor,
        labels: Tensor,
        ignore_index: int,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        options = self.options
        draw = draw_pairs(embeddings, logits, labels, options, ignore_index, generator)
        anchor, sample = self._gather(embeddings, draw)
        cosines = pair_cosines(anchor, sample, torch.cat([draw.positive, draw.negative], 2))
        positive, negative = cosines.split(options["num_samples"], 2)
        weight = self._weigh(logits, draw, cosines.dtype)
        count = draw.anchors.count
        pairs = PairCosines(
            positive=positive,
            negative=negative,
            positive_count=draw.positive_count,
            negative_count=draw.negative_count,
            anchor_count=count,
            weight=None if weight is None else weight.gather(1, draw.positive.flatten(1)).view_as(positive),
        )
        loss = self._evaluate(pairs)

        is_set = draw.anchors.runs.first & (count > 0)
        if options["reduction"] == "set_size":
            pixels = (draw.anchors.set_size * is_set).sum().to(loss.dtype)
            loss = loss * (pixels / is_set.sum().clamp(min=1) / options["num_samples"])
        with torch.no_grad():
            statistics = {
                "anchors": (count > 0).sum(),
                "sets": is_set.sum(),
                "positive_similarity": pairs.anchor_mean(_pair_mean(positive, draw.positive_count)),
                "negative_similarity": pairs.anchor_mean(_pair_mean(negative, draw.negative_count)),
            }
            if weight is not None:
                mask = draw.positive_column
                number = mask.sum().clamp(min=1)
                mean = (weight * mask).sum() / number
                variance = ((weight - mean).square() * mask).sum() / number
                statistics |= {"weight_mean": mean, "weight_std": variance.sqrt()}
        return loss, statistics

    def _gather(self, embeddings: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Take the unit-length anchors (B, D, A) and samples (B, D, S)."""
        detach_norm, anchors = self.options["detach_anchor_norm"], draw.anchors.pixel
        if self.options["detach_samples"]:  # only the gather of the anchors needs a backward pass
            sample = normalise(gather_pixels(embeddings.detach(), draw.column), 1)
            return normalise(gather_pixels(embeddings, anchors), 1, detach_norm), sample
        vectors = gather_pixels(embeddings, torch.cat([anchors, draw.column], 1))
        if not detach_norm:
            vectors = normalise(vectors, 1)
        anchor, sample = vectors.split([anchors.shape[1], draw.column.shape[1]], 2)
        return (normalise(anchor, 1, True), normalise(sample, 1)) if detach_norm else (anchor, sample)

    def _weigh(self, logits: Tensor, draw: Draw, dtype: torch.dtype) -> Tensor | None:
        """Weigh the columns that may be positives, (B, P); None without weights."""
        return None

    def _evaluate(self, pairs: PairCosines) -> Tensor:
        """Compute the loss, a scalar."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes for its pairs")


def _pair_mean(values: Tensor, count: Tensor) -> Tensor:
    return (values * count).sum(-1) / count.sum(-1).clamp(min=1)


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
