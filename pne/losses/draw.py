"""One draw of a contrast between misclassified and correct pixels: which anchors meet which positives and negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pne.losses.anchors import Anchors, PixelGroups, draw_anchors, group_pixels, mark_candidates
from pne.losses.inputs import PixelClasses, classify_pixels
from pne.losses.negatives import hardest_pixels, pool_samples
from pne.losses.ordering import compact, multiplicity, order_pixels, sort_groups
from pne.losses.samples import ClassSamples, draw_samples

__all__ = ["Draw", "draw_pairs"]


@dataclass(frozen=True)
class Draw:
    """Indices of one draw, padded to fixed sizes.

    Attributes
    ----------
    anchors : Anchors
        A per image.
    column : Tensor, shape (B, S), int64
        Raster index of every pixel that serves as a positive or negative in its image.
    positive, negative : Tensor, shape (B, A, K), int64
        Places in `column`; positives are among the first P.
    positive_count, negative_count : Tensor, shape (B, A, K), int64
        How often each is drawn; 0 marks padding.
    positive_column : Tensor, shape (B, P), bool
        Which of the first P columns are a positive of some drawn anchor.
    """

    anchors: Anchors
    column: Tensor
    positive: Tensor
    positive_count: Tensor
    negative: Tensor
    negative_count: Tensor
    positive_column: Tensor


@torch.no_grad()
def draw_pairs(
    embeddings: Tensor,
    logits: Tensor,
    labels: Tensor,
    options: Mapping[str, Any],
    ignore_index: int,
    generator: torch.Generator | None,
) -> Draw:
    """Draw anchors, positives and negatives for every image of a batch.

    Parameters
    ----------
    embeddings : Tensor, shape (B, D, h, w), floating
        Read for ``negatives='hard'`` alone.
    logits : Tensor, shape (B, C, h, w), floating
    labels : Tensor, shape (B, H, W), integer
    options : Mapping
        Sampling options of the loss. With ``max_anchors=None`` the sizes A and S follow from the batch, at the price of
        one synchronisation of host and device; otherwise from the shapes and options.
    ignore_index : int
    generator : torch.Generator or None

    Returns
    -------
    Draw
    """
    pixels = classify_pixels(logits, labels, ignore_index)
    order = order_pixels(options["sampling"], pixels.label, generator)
    groups = group_pixels(pixels, order, options)
    marks = mark_candidates(groups, options)
    sizes = _find_sizes(pixels, groups, marks[0], options)
    anchors = draw_anchors(pixels, groups, marks, sizes[0], options, generator)
    drawn = groups.correct.clamp(max=options["num_samples"])
    samples = draw_samples(groups.correct, drawn, groups.order, groups.pixel, sizes[1])

    cyclic, num_samples = options["sampling"] == "raster", options["num_samples"]
    rank = torch.arange(num_samples, device=order.device)
    positive = samples.offset.gather(1, anchors.label).unsqueeze(2) + rank
    available = samples.drawn.gather(1, anchors.label)
    extra, negative, negative_available = _draw_negatives(
        embeddings, pixels, groups, anchors, samples, options, generator
    )
    columns = [samples.pixel, extra]
    if options["empty_negatives"] == "anchors":
        anchor, present = compact(anchors.fallback, sizes[2])
        own = anchors.fallback.cumsum(1) - 1 - anchors.runs.rank + samples.pixel.shape[1] + extra.shape[1]
        columns.append(torch.where(present, anchors.pixel.gather(1, anchor), 0))
        negative = torch.where(anchors.fallback.unsqueeze(2), own.unsqueeze(2) + rank, negative)
        negative_available = torch.where(anchors.fallback, anchors.runs.length, negative_available)
    column = torch.cat(columns, 1)

    real = (anchors.count > 0).unsqueeze(2)
    served = torch.zeros_like(groups.correct).scatter_add_(1, anchors.label, anchors.count) > 0
    return Draw(
        anchors=anchors,
        column=column,
        positive=positive.clamp_(max=samples.pixel.shape[1] - 1),
        positive_count=multiplicity(rank, available.unsqueeze(2), num_samples, cyclic) * real,
        negative=negative.clamp(0, column.shape[1] - 1),
        negative_count=multiplicity(rank, negative_available.unsqueeze(2), num_samples, cyclic) * real,
        positive_column=samples.present & served.gather(1, samples.label),
    )


def _find_sizes(
    pixels: PixelClasses, groups: PixelGroups, candidate: Tensor, options: Mapping[str, Any]
) -> tuple[int, int, int]:
    """Find how many anchors, class samples and anchors without a negative an image may have."""
    places = candidate.shape[1]
    if options["max_anchors"] is not None:
        anchors = min(options["max_anchors"], places)
        return anchors, min(pixels.num_classes * options["num_samples"], places), anchors
    totals = torch.stack(
        [
            candidate.sum(1),
            groups.correct.clamp(max=options["num_samples"]).sum(1),
            (candidate & groups.fallback.gather(1, groups.pixel)).sum(1),
        ]
    )
    anchors, samples, fallback = totals.amax(1).clamp(min=1).tolist()  # the one synchronisation
    return anchors, samples, fallback


def _draw_negatives(
    embeddings: Tensor,
    pixels: PixelClasses,
    groups: PixelGroups,
    anchors: Anchors,
    samples: ClassSamples,
    options: Mapping[str, Any],
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the negatives of each anchor.

    Returns
    -------
    extra : Tensor, shape (B, X), int64
        Pixels that serve besides `samples`.
    index : Tensor, shape (B, A, K), int64
        Places in the samples followed by the extra pixels.
    available : Tensor, shape (B, A), int64
        How many of them hold.
    """
    num_samples, base = options["num_samples"], samples.pixel.shape[1]
    rank = torch.arange(num_samples, device=samples.pixel.device)
    extra = samples.pixel[:, :0]
    if groups.allowed is None:  # the correct pixels of the predicted class
        index = samples.offset.gather(1, anchors.predicted).unsqueeze(2) + rank
        return extra, index, samples.drawn.gather(1, anchors.predicted)
    if options["negatives"] == "hard":
        classes, (batch, places) = pixels.num_classes, pixels.label.shape
        sets = classes if options["anchor_sets"] == "mixed" else classes * (classes - 1)
        sets = min(anchors.pixel.shape[1], sets + 1)  # the padding is a run of its own
        pixel, available = hardest_pixels(embeddings, pixels, anchors, sets, num_samples)
        ordinal = anchors.runs.ordinal.clamp(max=sets - 1)
        if sets * num_samples < places:
            extra = pixel.flatten(1)
            index = ordinal.unsqueeze(2) * pixel.shape[2] + rank
        else:  # the whole image is smaller
            extra = torch.arange(places, device=pixel.device).expand(batch, -1)
            chosen = pixel.gather(1, ordinal.unsqueeze(2).expand(-1, -1, pixel.shape[2]))
            index = torch.nn.functional.pad(chosen, (0, num_samples - pixel.shape[2]))
        return extra, base + index, available.gather(1, ordinal)
    pool = samples
    if options["negatives"] == "random" and options["sampling"] == "raster":
        group = torch.where(pixels.correct, pixels.label, pixels.num_classes)
        _, order, pixel = sort_groups(group, order_pixels("random", group, generator))
        pool = draw_samples(groups.correct, samples.drawn, order, pixel, base)
        extra = pool.pixel
    index, available = pool_samples(pool, groups.allowed, num_samples)
    index = index + (0 if pool is samples else base)
    index = index.gather(1, anchors.label.unsqueeze(2).expand(-1, -1, num_samples))
    return extra, index, available.gather(1, anchors.label)
