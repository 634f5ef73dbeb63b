"""Base of the losses whose anchors are the misclassified pixels of an image."""

from __future__ import annotations

import torch
from torch import Tensor

from pne.losses.draw import Draw, draw_pairs
from pne.losses.inputs import check_inputs
from pne.losses.module import ContrastLoss
from pne.losses.similarity import gather_pixels, normalise, pair_cosines, pick

__all__ = ["MisclassifiedContrast"]


class MisclassifiedContrast(ContrastLoss):
    """Draws the pairs, computes their cosines and averages the terms of the anchors, which a subclass gives.

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
        pairs = pair_cosines(anchor, sample, torch.cat([draw.positive, draw.negative], 2))
        positive, negative = pairs.split(options["num_samples"], 2)  # (B, A, K) each
        weight = self._weigh(logits, draw, pairs.dtype)
        pair_weight = None if weight is None else pick(weight, draw.positive)
        terms = self._terms(positive, negative, draw.positive_count, draw.negative_count, pair_weight)

        count = draw.anchors.count
        total = count.sum().clamp(min=1)
        loss = (terms * count).sum() / total
        is_set = draw.anchors.runs.first & (count > 0)
        if options["reduction"] == "set_size":
            pixels = (draw.anchors.set_size * is_set).sum().to(loss.dtype)
            loss = loss * (pixels / is_set.sum().clamp(min=1) / options["num_samples"])
        with torch.no_grad():
            statistics = {
                "anchors": (count > 0).sum(),
                "sets": is_set.sum(),
                "positive_similarity": (_mean(positive, draw.positive_count) * count).sum() / total,
                "negative_similarity": (_mean(negative, draw.negative_count) * count).sum() / total,
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

    def _terms(
        self,
        positive: Tensor,
        negative: Tensor,
        positive_count: Tensor,
        negative_count: Tensor,
        weight: Tensor | None,
    ) -> Tensor:
        """Compute the term of each anchor, (B, A), from cosines and counts (B, A, K)."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes for an anchor")


def _mean(values: Tensor, count: Tensor) -> Tensor:
    return (values * count).sum(-1) / count.sum(-1).clamp(min=1)
