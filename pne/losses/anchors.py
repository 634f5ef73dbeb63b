"""Anchor sets and the anchors drawn from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pne.losses.inputs import PixelClasses
from pne.losses.ordering import LAST, Runs, compact, find_runs, multiplicity, order_pixels, sort_groups

__all__ = ["Anchors", "PixelGroups", "draw_anchors", "group_pixels"]


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
