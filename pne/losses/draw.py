"""One draw of a contrast between misclassified and correct pixels: which anchors meet which positives and negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pne.losses.pixels import (
    LAST,
    ClassSamples,
    PixelClasses,
    Runs,
    classify_pixels,
    compact,
    draw_samples,
    find_runs,
    multiplicity,
    order_pixels,
    pool_samples,
    sort_groups,
)
from pne.losses.similarity import BLOCK, gather_pixels, normalise

__all__ = ["Anchors", "Draw", "draw_pairs"]


@dataclass(frozen=True)
class PixelGroups:
    """Pixels sorted into the correct ones of each class and the anchor sets.

    Attributes
    ----------
    correct : Tensor, shape (B, C), int64
        Number of correctly predicted pixels of each class.
    allowed : Tensor, shape (B, C, C), bool, or None
        For true class k and class c: whether the correct pixels of c are negatives of the anchors labelled k. None
        where that depends on the predicted class, with ``anchor_sets='individual', negatives='corresponding'``.
    fallback : Tensor, shape (B, N), bool
        Errors without a negative, whose set itself supplies the negatives.
    group, order, pixel : Tensor, shape (B, N), int64
        Sorted. Groups 0 to C-1 are the correct pixels of each class, then follow the sets, then all the rest.
    in_set : Tensor, shape (B, N), bool
        Whether the sorted pixel belongs to a set.
    """

    correct: Tensor
    allowed: Tensor | None
    fallback: Tensor
    group: Tensor
    order: Tensor
    pixel: Tensor
    in_set: Tensor


@dataclass(frozen=True)
class Anchors:
    """Drawn anchors of each image, set after set.

    Attributes
    ----------
    pixel, label, predicted : Tensor, shape (B, A), int64
    count : Tensor, shape (B, A), int64
        How often the pixel is drawn; 0 marks padding.
    set_size : Tensor, shape (B, A), int64
        Number of pixels of the whole set.
    fallback : Tensor, shape (B, A), bool
        Whether the set's own anchors are the negatives.
    runs : Runs
        Of anchors of one set; padding is the last run.
    """

    pixel: Tensor
    label: Tensor
    predicted: Tensor
    count: Tensor
    set_size: Tensor
    fallback: Tensor
    runs: Runs


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


def _count(index: Tensor, mask: Tensor, size: int) -> Tensor:
    return index.new_zeros(*index.shape[:-1], size).scatter_add_(-1, index, mask.long())


def group_pixels(pixels: PixelClasses, order: Tensor, options: Mapping[str, Any]) -> PixelGroups:
    """Group the pixels; leave out the errors that cannot be contrasted.

    A set needs a positive, a correct pixel of its true class k. It needs a negative, or, with
    ``empty_negatives='anchors'``, the predicted class must occur in the labels of the image, as the released code
    loops over those classes; other errors then belong to no set.
    """
    classes = pixels.num_classes
    label, predicted, wrong = pixels.label, pixels.predicted, pixels.wrong
    correct = _count(label, pixels.correct, classes)  # (B, C)
    if options["empty_negatives"] == "anchors":
        wrong = wrong & (_count(label, pixels.valid, classes) > 0).gather(1, predicted)
    wrong = wrong & (correct > 0).gather(1, label)

    mixed, allowed = options["anchor_sets"] == "mixed", None
    if options["negatives"] != "corresponding":  # every class but the true one
        allowed = ~torch.eye(classes, dtype=torch.bool, device=label.device).expand(len(label), -1, -1)
    elif mixed:  # the classes for which the set's pixels were mistaken
        allowed = (_count(label * classes + predicted, wrong, classes**2) > 0).view(-1, classes, classes)
    if allowed is None:
        has_negative = (correct > 0).gather(1, predicted)
    else:
        has_negative = (allowed & (correct > 0).unsqueeze(1)).any(2).gather(1, label)
    if options["empty_negatives"] == "drop":
        wrong = wrong & has_negative

    number = label if mixed else label * classes + predicted
    rest = classes + classes * (1 if mixed else classes)
    group = torch.where(wrong, classes + number, rest)
    group = torch.where(pixels.correct, label, group)
    group, order, pixel = sort_groups(group, order)
    in_set = (group >= classes) & (group < rest)
    return PixelGroups(correct, allowed, wrong & ~has_negative, group, order, pixel, in_set)


def mark_candidates(groups: PixelGroups, options: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Apply the limits on sets: which sorted pixels may be anchors, how often, and how large is their set.

    Returns
    -------
    candidate : Tensor, shape (B, N), bool
    count, set_size : Tensor, shape (B, N), int64
    """
    runs = find_runs(groups.group)
    candidate = groups.in_set
    if options["max_set_size"] is not None:
        candidate = candidate & (runs.length <= options["max_set_size"])
    count = torch.ones_like(runs.length)
    if options["anchors_per_set"] is not None:
        cyclic = options["sampling"] == "raster"
        count = multiplicity(runs.rank, runs.length, options["anchors_per_set"], cyclic)
        candidate = candidate & (count > 0)
    return candidate, count, runs.length


def draw_anchors(
    pixels: PixelClasses,
    groups: PixelGroups,
    marks: tuple[Tensor, Tensor, Tensor],
    size: int,
    options: Mapping[str, Any],
    generator: torch.Generator | None,
) -> Anchors:
    """Draw the anchors of each image.

    Parameters
    ----------
    pixels, groups
        The batch.
    marks
        From `mark_candidates`.
    size : int
        Number A of places for anchors in an image: `max_anchors`, or as many as there are candidates at most.
    options : Mapping
        With `max_anchors` set, so many distinct pixels are kept of the image's candidates: uniformly random ones, or
        with raster sampling the first ones; what `anchors_per_set` repeats of them stays repeated.
    generator : torch.Generator or None
    """
    candidate, count, set_size = marks
    if options["max_anchors"] is None:
        place, present = compact(candidate, size)
    else:
        order = groups.order
        if options["sampling"] == "random" and options["anchors_per_set"] is not None:
            order = order_pixels("random", order, generator)  # what a set kept has the small numbers of the old order
        place = torch.where(candidate, order, LAST).topk(size, largest=False, sorted=False).indices
        length = candidate.shape[1]
        place = torch.where(candidate.gather(1, place), place, length).sort(1).values  # sets stay together
        present, place = place < length, place.clamp(max=length - 1)
    pixel = groups.pixel.gather(1, place)
    rest = groups.group.gather(1, place).masked_fill(~present, torch.iinfo(torch.int64).max)
    return Anchors(
        pixel=pixel,
        label=pixels.label.gather(1, pixel),
        predicted=pixels.predicted.gather(1, pixel),
        count=count.gather(1, place) * present,
        set_size=set_size.gather(1, place),
        fallback=groups.fallback.gather(1, pixel) & present,
        runs=find_runs(rest),
    )


def hardest_pixels(
    embeddings: Tensor, pixels: PixelClasses, anchors: Anchors, num_sets: int, num_samples: int
) -> tuple[Tensor, Tensor]:
    """Find the pixels most similar to each set of anchors.

    Candidates are the correct pixels of all classes but the set's true class. Similarity is the cosine to the mean of
    the unit-length drawn anchors, a pixel drawn several times counting so often.

    Parameters
    ----------
    embeddings : Tensor, shape (B, D, h, w), floating
        Constants here: the choice passes no gradient.
    pixels, anchors
        The batch.
    num_sets : int
        Number G of places for sets in an image.
    num_samples : int

    Returns
    -------
    pixel : Tensor, shape (B, G, min(num_samples, N)), int64
        The most similar first.
    available : Tensor, shape (B, G), int64
        How many of them are candidates.
    """
    embeddings = embeddings.detach()
    batch, dim = embeddings.shape[:2]
    unit = normalise(gather_pixels(embeddings, anchors.pixel), 1) * anchors.count.unsqueeze(1)  # (B, D, A)
    ordinal = anchors.runs.ordinal.clamp(max=num_sets - 1)
    centre = unit.new_zeros(batch, dim, num_sets).scatter_add_(2, ordinal.unsqueeze(1).expand_as(unit), unit)
    label = ordinal.new_full((batch, num_sets), -1).scatter_reduce_(
        1, ordinal, torch.where(anchors.count > 0, anchors.label, -1), "amax"
    )
    everything = embeddings.flatten(2).to(unit.dtype)
    length = torch.linalg.vector_norm(everything, dim=1, keepdim=True).clamp(min=1e-12)
    other = (~pixels.correct).unsqueeze(1)
    indices, available = [], []
    rows = max(1, BLOCK // (batch * everything.shape[2]))
    for some, own in zip(centre.split(rows, 2), label.split(rows, 1), strict=True):  # one block at common sizes
        similarity = torch.bmm(some.transpose(1, 2), everything) / length  # in multiples of the centre's length
        similarity.masked_fill_(other | (pixels.label.unsqueeze(1) == own.unsqueeze(2)), -torch.inf)
        best = similarity.topk(min(num_samples, similarity.shape[2]), dim=2)
        indices.append(best.indices)
        available.append(torch.isfinite(best.values).sum(2))
    return torch.cat(indices, 1), torch.cat(available, 1)
