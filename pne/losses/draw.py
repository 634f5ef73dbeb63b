"""One draw of a contrast between misclassified and correct pixels: which anchors meet which positives and negatives.

Classes are numbered to E = C + 1 here: the last one stands for ignored pixels, is never predicted and so never holds a
correct pixel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pne.losses.pixels import (
    ClassSamples,
    PixelClasses,
    classify_pixels,
    compact,
    count_members,
    draw_samples,
    multiplicity,
    pool_samples,
    random_numbers,
    shuffle,
    sort_groups,
)
from pne.losses.similarity import BLOCK, gather_pixels, normalise

__all__ = ["Anchors", "Draw", "draw_pairs"]


@dataclass(frozen=True)
class AnchorSets:
    """Pixels of a batch by true and confused class, the sets that they form, and which of these may give anchors.

    A confusion is a true class k and a shift; the class confused with it is ``(k + shift) % E``, and shift 0 stands for
    what is right. A set is a confusion or, mixed, all confusions of a true class.

    Attributes
    ----------
    confusion : Tensor, shape (B, N), int64
        Of each pixel: ``shift * E + k``.
    number : Tensor, shape (B, N), int64
        Set of each pixel, below the number of sets.
    usable : Tensor, shape (B, E * E), bool
        Confusions whose pixels may be anchors.
    size : Tensor, shape (B, sets), int64
        Number of pixels of each set that may be anchors.
    fallback : Tensor, shape (B, sets), bool
        Sets without a negative, which supply the negatives themselves.
    correct : Tensor, shape (B, E), int64
        Number of correctly predicted pixels of each class.
    allowed : Tensor, shape (B, E, E), bool, or None
        For true class k and class c: whether the correct pixels of c are negatives of the anchors labelled k. None
        where that depends on the confused class, with ``anchor_sets='individual', negatives='corresponding'``.
    """

    confusion: Tensor
    number: Tensor
    usable: Tensor
    size: Tensor
    fallback: Tensor
    correct: Tensor
    allowed: Tensor | None


@dataclass(frozen=True)
class Anchors:
    """Drawn anchors of each image.

    Attributes
    ----------
    pixel, label, predicted, number : Tensor, shape (B, A), int64
        Index, true and predicted class, and number of the set.
    count : Tensor, shape (B, A), int64
        How often the pixel is drawn; 0 marks padding.
    """

    pixel: Tensor
    label: Tensor
    predicted: Tensor
    number: Tensor
    count: Tensor


@dataclass(frozen=True)
class Draw:
    """Indices of one draw, padded to fixed sizes.

    Attributes
    ----------
    anchors : Anchors
        A per image.
    column : Tensor, shape (B, S), int64
        Raster index of every pixel that serves as a positive or negative in its image.
    index : Tensor, shape (B, A, 2, K), int64
        Places in `column` of the positives, which are among the first P, and of the negatives.
    count : Tensor, shape (B, A, 2, K), int64
        How often each is drawn; 0 marks padding.
    positive_column : Tensor, shape (B, P), bool
        Which of the first P columns are a positive of some drawn anchor.
    drawn_set : Tensor, shape (B, sets), bool
        Which sets have a drawn anchor.
    set_size : Tensor, shape (B, sets), int64
        Number of pixels of the whole set.
    """

    anchors: Anchors
    column: Tensor
    index: Tensor
    count: Tensor
    positive_column: Tensor
    drawn_set: Tensor
    set_size: Tensor


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
    num_samples, cyclic = options["num_samples"], options["sampling"] == "raster"
    pixels = classify_pixels(logits, labels, ignore_index)
    rival = _find_rivals(logits, pixels) if options["anchors_from"] == "labelled" else pixels.predicted
    sets = _find_sets(pixels, rival, options)
    shuffled = shuffle(options["sampling"], pixels.label, generator)
    drawn = sets.correct.clamp(max=num_samples)
    size, sample_size, fallback_size = _find_sizes(sets, drawn, options)
    anchors = _draw_anchors(pixels, rival, sets, size, shuffled, options, generator)
    group = pixels.label.masked_fill(~pixels.correct, pixels.num_classes)
    sorted_pixel, order = sort_groups(group, pixels.num_classes + 1, shuffled)
    samples = draw_samples(sets.correct, drawn, sorted_pixel, sample_size)
    member = torch.zeros_like(sets.size).scatter_add_(1, anchors.number, (anchors.count > 0).long())

    rank = torch.arange(num_samples, device=rival.device)
    columns = [samples.pixel]
    if sets.allowed is None:  # the correct pixels of the true and of the confused class
        ends = torch.stack([anchors.label, anchors.predicted], 2).flatten(1)
        index = samples.offset.gather(1, ends).view(*anchors.label.shape, 2, 1) + rank
        available = samples.drawn.gather(1, ends).view(*anchors.label.shape, 2)
    else:
        extra, *negative = _draw_negatives(
            embeddings, pixels, sets, anchors, member, samples, order, options, generator
        )
        columns.append(extra)
        positive = samples.offset.gather(1, anchors.label).unsqueeze(2) + rank
        index = torch.stack([positive, negative[0]], 2)
        available = torch.stack([samples.drawn.gather(1, anchors.label), negative[1]], 2)
    if options["empty_negatives"] == "anchors":
        own = sets.fallback.gather(1, anchors.number) & (anchors.count > 0)
        place, present = compact(own, fallback_size)
        supplied = member * sets.fallback
        begin = supplied.cumsum(1) - supplied + sum(column.shape[1] for column in columns)
        columns.append(torch.where(present, anchors.pixel.gather(1, place), place))
        mates = begin.gather(1, anchors.number).unsqueeze(2) + rank
        index[:, :, 1] = torch.where(own.unsqueeze(2), mates, index[:, :, 1])
        available[:, :, 1] = torch.where(own, supplied.gather(1, anchors.number), available[:, :, 1])
    column = torch.cat(columns, 1)
    for end, part in enumerate((samples.pixel, column)):
        index[:, :, end].clamp_(max=part.shape[1] - 1)
    count = multiplicity(rank, available.unsqueeze(3), num_samples, cyclic)
    if options["anchors_from"] == "labelled":  # no pixel is its own positive
        itself = column.gather(1, index[:, :, 0].flatten(1)).view_as(count[:, :, 0]) == anchors.pixel.unsqueeze(2)
        count[:, :, 0].masked_fill_(itself, 0)
        anchors.count.masked_fill_(count[:, :, 0].sum(2) == 0, 0)
        member = torch.zeros_like(sets.size).scatter_add_(1, anchors.number, (anchors.count > 0).long())

    drawn_set = member > 0
    served = drawn_set.view(len(rival), -1, pixels.num_classes + 1).any(1)
    return Draw(
        anchors=anchors,
        column=column,
        index=index,
        count=count,
        positive_column=samples.present & served.gather(1, samples.label),
        drawn_set=drawn_set,
        set_size=sets.size,
    )


def _find_rivals(logits: Tensor, pixels: PixelClasses) -> Tensor:
    """Find the class of the largest logit but that of the true class, (B, N): for errors the predicted one."""
    true = pixels.label.clamp(max=pixels.num_classes - 1).unsqueeze(1)
    return logits.detach().flatten(2).scatter(1, true, -torch.inf).max(1).indices


def _find_sets(pixels: PixelClasses, rival: Tensor, options: Mapping[str, Any]) -> AnchorSets:
    """Group the pixels; leave out what cannot be contrasted.

    A set needs a positive, a correct pixel of its true class k. It needs a negative, or, with
    ``empty_negatives='anchors'``, the confused class must occur in the labels of the image, as the released code
    loops over those classes.
    """
    label, classes = pixels.label, pixels.num_classes + 1
    shift = torch.sub(rival, label).remainder_(classes)
    confusion = torch.add(label, shift, alpha=classes)
    count = count_members(confusion, classes**2).unflatten(1, (classes, classes))  # (B, shift, k)
    if options["anchors_from"] == "errors":
        correct = count[:, 0]
    else:
        correct = count_members(label.masked_fill(~pixels.correct, classes - 1), classes)
        correct[:, -1] = 0
    exists = correct > 0
    usable = exists.unsqueeze(1)
    if options["empty_negatives"] == "anchors":
        usable = usable & _by_confusion(count.sum(1) > 0)

    mixed, allowed = options["anchor_sets"] == "mixed", None
    if options["negatives"] != "corresponding":  # every class but the true one
        allowed = ~torch.eye(classes, dtype=torch.bool, device=label.device).expand(len(label), -1, -1)
        has_negative = (exists.sum(1, keepdim=True) > exists).unsqueeze(1)
    elif mixed:  # the classes with which the set's pixels were confused
        found = usable & (count > 0)
        found[:, 0] = False
        has_negative = (found & _by_confusion(exists)).any(1, keepdim=True)
        number = torch.arange(classes, device=label.device)
        allowed = found.transpose(1, 2).gather(
            2, (number - number.unsqueeze(1)).remainder_(classes).expand(len(label), -1, -1)
        )
    else:
        has_negative = _by_confusion(exists)
    if options["empty_negatives"] == "drop":
        usable = usable & has_negative
    usable = usable.expand_as(count).clone()
    usable[:, 0] = False

    size = count * usable
    size = size.sum(1) if mixed else size.flatten(1)
    if options["max_set_size"] is not None:
        small = size <= options["max_set_size"]
        size = size * small
        usable &= small.view(len(label), -1, classes)
    return AnchorSets(
        confusion=confusion,
        number=label if mixed else confusion,
        usable=usable.flatten(1),
        size=size,
        fallback=(~has_negative).expand(-1, 1 if mixed else classes, -1).flatten(1),
        correct=correct,
        allowed=allowed,
    )


def _by_confusion(table: Tensor) -> Tensor:
    """Look up the confused class of each confusion, (B, E) to (B, E, E)."""
    classes = table.shape[1]
    return torch.cat([table, table], 1).unfold(1, classes, 1)[:, :classes]


def _find_sizes(sets: AnchorSets, drawn: Tensor, options: Mapping[str, Any]) -> tuple[int, int, int]:
    """Find how many anchors, class samples and anchors without a negative an image may have."""
    pixels = sets.number.shape[1]
    if options["max_anchors"] is not None:
        anchors = min(options["max_anchors"], pixels)
        return anchors, min((drawn.shape[1] - 1) * options["num_samples"], pixels), anchors
    kept = sets.size if options["anchors_per_set"] is None else sets.size.clamp(max=options["anchors_per_set"])
    totals = torch.stack([kept.sum(1), drawn.sum(1), (kept * sets.fallback).sum(1)])
    anchors, samples, fallback = totals.amax(1).clamp(min=1).tolist()  # the one synchronisation
    return anchors, samples, fallback


def _draw_anchors(
    pixels: PixelClasses,
    rival: Tensor,
    sets: AnchorSets,
    size: int,
    shuffled: Tensor | None,
    options: Mapping[str, Any],
    generator: torch.Generator | None,
) -> Anchors:
    """Draw the anchors of each image, at most `size`.

    With `max_anchors` set, so many distinct pixels are kept of the image's candidates: uniformly random ones, or with
    raster sampling the first ones; what `anchors_per_set` repeats of them stays repeated. A balanced draw takes the
    first pixel of each set, then the second of each, and so on, random ones of the last round.
    """
    limit, most, number = options["anchors_per_set"], options["max_anchors"], sets.size.shape[1]
    candidate = sets.usable.gather(1, sets.confusion)
    total = sets.size.sum(1, keepdim=True)
    balanced = options["anchor_draw"] == "balanced" and most is not None
    if limit is None and not balanced:
        key = sets.number.masked_fill(~candidate, number) if most is None else ~candidate
        pixel = sort_groups(key, number + 1, shuffled)[0][:, :size]
        count = (torch.arange(size, device=pixel.device) < total).long()
    else:
        key = sets.number.masked_fill(~candidate, number)
        pixel, _ = sort_groups(key, number + 1, shuffled)
        own, place = sets.number.gather(1, pixel), torch.arange(key.shape[1], device=key.device)
        rank = place - (sets.size.cumsum(1) - sets.size).gather(1, own)
        count = (place < total).long()
        if limit is not None:
            count *= multiplicity(rank, sets.size.gather(1, own), limit, options["sampling"] == "raster")
        if most is None:
            place, present = compact(count > 0, size)
            count = count.gather(1, place) * present
        else:
            priority = pixel if options["sampling"] == "raster" else random_numbers(pixel, generator).long()
            if balanced:
                priority = priority + (rank << 32)
            priority = priority.masked_fill(count == 0, torch.iinfo(torch.int64).max)
            place = priority.topk(size, largest=False, sorted=False).indices
            count = count.gather(1, place)
        pixel = pixel.gather(1, place)
    if options["empty_negatives"] == "anchors" and most is not None:  # sets stay together
        key = sets.number.gather(1, pixel).masked_fill(count == 0, number)
        place = key.sort(stable=True).indices
        pixel, count = pixel.gather(1, place), count.gather(1, place)
    return Anchors(
        pixel=pixel,
        label=pixels.label.gather(1, pixel),
        predicted=rival.gather(1, pixel),
        number=sets.number.gather(1, pixel),
        count=count,
    )


def _draw_negatives(
    embeddings: Tensor,
    pixels: PixelClasses,
    sets: AnchorSets,
    anchors: Anchors,
    member: Tensor,
    samples: ClassSamples,
    order: Tensor,
    options: Mapping[str, Any],
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the negatives of each anchor where they do not follow from its confused class.

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
    if options["negatives"] == "hard":
        places = pixels.label.shape[1]
        ordinal = ((member > 0).cumsum(1) - 1).gather(1, anchors.number).clamp_(min=0)
        # as many places as there may be sets with an anchor; no class is confused with itself, none with the ignored
        most = min(anchors.pixel.shape[1], pixels.num_classes * (pixels.num_classes - 1), member.shape[1])
        ordinal.clamp_(max=most - 1)
        pixel, available = _hardest_pixels(embeddings, pixels, anchors, ordinal, most, num_samples)
        rank = torch.arange(num_samples, device=pixel.device)
        if most * num_samples < places:
            extra = pixel.flatten(1)
            index = ordinal.unsqueeze(2) * pixel.shape[2] + rank
        else:  # the whole image is smaller
            extra = torch.arange(places, device=pixel.device).expand(len(pixel), -1)
            chosen = pixel.gather(1, ordinal.unsqueeze(2).expand(-1, -1, pixel.shape[2]))
            index = torch.nn.functional.pad(chosen, (0, num_samples - pixel.shape[2]))
        return extra, base + index, available.gather(1, ordinal)
    pool, extra = samples, samples.pixel[:, :0]
    if options["negatives"] == "random" and options["sampling"] == "raster":
        group = pixels.label.masked_fill(~pixels.correct, pixels.num_classes)
        pixel, order = sort_groups(group, pixels.num_classes + 1, shuffle("random", group, generator))
        pool = draw_samples(sets.correct, samples.drawn, pixel, base)
        extra = pool.pixel
    index, available = pool_samples(pool, order, sets.allowed, num_samples)
    index = index + (0 if pool is samples else base)
    index = index.gather(1, anchors.label.unsqueeze(2).expand(-1, -1, num_samples))
    return extra, index, available.gather(1, anchors.label)


def _hardest_pixels(
    embeddings: Tensor, pixels: PixelClasses, anchors: Anchors, ordinal: Tensor, most: int, num_samples: int
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
    ordinal : Tensor, shape (B, A), int64
        Number of each anchor's set among those with an anchor, below `most`.
    most, num_samples : int

    Returns
    -------
    pixel : Tensor, shape (B, most, min(num_samples, N)), int64
        The most similar first.
    available : Tensor, shape (B, most), int64
        How many of them are candidates.
    """
    embeddings = embeddings.detach()
    batch, dim = embeddings.shape[:2]
    unit = normalise(gather_pixels(embeddings, anchors.pixel), 1) * anchors.count.unsqueeze(1)  # (B, D, A)
    centre = unit.new_zeros(batch, dim, most).scatter_add_(2, ordinal.unsqueeze(1).expand_as(unit), unit)
    label = anchors.label.masked_fill(anchors.count == 0, -1)
    label = label.new_full((batch, most), -1).scatter_reduce_(1, ordinal, label, "amax")
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
