"""Contrast of misclassified with correct pixels: the base of its losses, and the pairs of a draw in plain form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pne.losses.base import ContrastLoss, check_inputs
from pne.losses.draw import Draw, draw_pairs
from pne.losses.similarity import gather_pixels, normalise, pair_cosines

__all__ = ["MisclassifiedContrast", "PairCosines", "PairSample", "sample_pairs"]


@dataclass(frozen=True)
class PairCosines:
    """Cosines of the drawn anchors to their positives and negatives, at 0 and 1 of the axis of length 2.

    Attributes
    ----------
    cosine : Tensor, shape (B, A, 2, K), at least float32
    count : Tensor, shape (B, A, 2, K), same dtype
        How often each counts; 0 for padding, of which the cosines are finite and mean nothing.
    total : Tensor, shape (B, A, 2), same dtype
        Sum of the counts, at least 1.
    anchor_count : Tensor, shape (B, A), same dtype
        How often the anchor counts; 0 for padding.
    weight : Tensor, shape (B, A, K), same dtype, or None
        Weights of the positives, > 0.
    """

    cosine: Tensor
    count: Tensor
    total: Tensor
    anchor_count: Tensor
    weight: Tensor | None

    @cached_property
    def anchors(self) -> Tensor:
        """Number of drawn anchors of the batch, at least 1."""
        return self.anchor_count.sum().clamp_(min=1)

    def anchor_mean(self, values: Tensor) -> Tensor:
        """Average values (B, A) over the drawn anchors of the batch; 0 where there are none."""
        return (values * self.anchor_count).sum() / self.anchors

    def similarities(self) -> Tensor:
        """Average the mean cosine of an anchor to its positives, and to its negatives, over the anchors, (2,)."""
        means = (self.cosine.detach() * self.count).sum(3) / self.total
        return (means * self.anchor_count.unsqueeze(2)).sum((0, 1)) / self.anchors


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
        cosine = pair_cosines(anchor, sample, draw.index.flatten(2)).view_as(draw.index)
        weight = self._weigh(logits, draw, cosine.dtype)
        count = draw.count.to(cosine.dtype)
        pairs = PairCosines(
            cosine=cosine,
            count=count,
            total=count.sum(3).clamp_(min=1),
            anchor_count=draw.anchors.count.to(cosine.dtype),
            weight=None if weight is None else _pick(weight, draw.index[:, :, 0]),
        )
        loss = self._evaluate(pairs)

        sets = draw.drawn_set.sum(dtype=torch.float32)
        if options["reduction"] == "set_size":
            pixels = (draw.set_size * draw.drawn_set).sum().to(loss.dtype)
            loss = loss * (pixels / sets.clamp(min=1) / options["num_samples"])
        with torch.no_grad():
            positive, negative = pairs.similarities().unbind()
            statistics = {
                "anchors": draw.anchors.count.sign().sum(dtype=torch.float32),
                "sets": sets,
                "positive_similarity": positive,
                "negative_similarity": negative,
            }
            if weight is not None:
                mask = draw.positive_column
                number = mask.sum().clamp_(min=1)
                mean = (weight * mask).sum() / number
                variance = ((weight - mean).square_() * mask).sum() / number
                statistics |= {"weight_mean": mean, "weight_std": variance.sqrt_()}
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


def _pick(columns: Tensor, index: Tensor) -> Tensor:
    return columns.gather(1, index.flatten(1)).view_as(index)


@dataclass(frozen=True)
class PairSample:
    """Drawn anchors of a batch, image after image, without padding.

    Attributes
    ----------
    image : Tensor, shape (A,), int64
        Image of the batch that holds anchor, positives and negatives.
    anchor : Tensor, shape (A,), int64
        Raster index of the anchor in its h x w map.
    predicted, label : Tensor, shape (A,), int64
        The class the anchor was mistaken for (of a correct anchor, the second in its scores), and its true class.
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

    index, count = draw.index[image, place], draw.count[image, place]  # (A, 2, K)
    pixel = torch.where(count > 0, draw.column[image.view(-1, 1, 1), index], -1)
    return PairSample(
        image=image,
        anchor=draw.anchors.pixel[image, place],
        predicted=draw.anchors.predicted[image, place],
        label=draw.anchors.label[image, place],
        anchor_count=draw.anchors.count[image, place],
        positive=pixel[:, 0],
        positive_count=count[:, 0],
        negative=pixel[:, 1],
        negative_count=count[:, 1],
    )
