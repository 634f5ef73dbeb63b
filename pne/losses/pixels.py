"""Pixels by class: which are right, and drawing from each class, by sorting.

Fixed shapes, no loop over groups, no host synchronisation. What draws works along the last axis, row by row; a row is
one image, or a whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "LAST",
    "ClassSamples",
    "PixelClasses",
    "Runs",
    "classify_pixels",
    "compact",
    "draw_samples",
    "find_runs",
    "multiplicity",
    "order_pixels",
    "pool_samples",
    "resize_labels",
    "sort_groups",
]

_KEY_BITS = 32  # of the order within a group; the group number takes the bits above

LAST = 2**_KEY_BITS - 1
"""Drawing order of what is drawn after all pixels."""


@dataclass(frozen=True)
class PixelClasses:
    """True and predicted class of every pixel, in raster order; N = h * w.

    Attributes
    ----------
    label : Tensor, shape (B, N), int64
        True class; 0 where the pixel is ignored.
    predicted : Tensor, shape (B, N), int64
        Class of the largest logit.
    valid, correct, wrong : Tensor, shape (B, N), bool
        Not ignored; valid and predicted rightly; valid and mistaken.
    num_classes : int
    """

    label: Tensor
    predicted: Tensor
    valid: Tensor
    correct: Tensor
    wrong: Tensor
    num_classes: int


def resize_labels(labels: Tensor, height: int, width: int) -> Tensor:
    """Bring labels to another size by nearest neighbour, source coordinates rounded down.

    Parameters
    ----------
    labels : Tensor, shape (B, H, W), integer
    height, width : int
        The size wanted; row i is row ``i * H // height`` of the labels, and columns likewise.

    Returns
    -------
    Tensor, shape (B, height, width), same dtype
    """
    for axis, size in ((1, height), (2, width)):
        given = labels.shape[axis]
        if given != size:
            index = torch.arange(size, device=labels.device) * given // size  # integers: exact at any size
            labels = labels.index_select(axis, index)
    return labels


def classify_pixels(logits: Tensor, labels: Tensor, ignore_index: int) -> PixelClasses:
    """Tell correct pixels from wrong ones.

    Parameters
    ----------
    logits : Tensor, shape (B, C, h, w), floating
    labels : Tensor, shape (B, H, W), integer
        At any size. Pixels labelled `ignore_index`, or with a number that is no class, belong to no group.
    ignore_index : int

    Returns
    -------
    PixelClasses
    """
    classes = logits.shape[1]
    label = resize_labels(labels, *logits.shape[2:]).flatten(1).long()
    predicted = logits.detach().flatten(2).max(1).indices  # the first of equal maxima; faster than argmax on the CPU
    valid = (label != ignore_index) & (label >= 0) & (label < classes)
    label = torch.where(valid, label, 0)
    hit = predicted == label
    return PixelClasses(label, predicted, valid, valid & hit, valid & ~hit, classes)


def order_pixels(sampling: str, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Give every pixel its place in the drawing order.

    Parameters
    ----------
    sampling : {'random', 'raster'}
        Independent random numbers (a uniformly random order), or row by row.
    like : Tensor, shape (B, N)
        Gives shape and device.
    generator : torch.Generator or None
        Source of the random numbers; the global one of the device if None.

    Returns
    -------
    Tensor, shape (B, N), int64
        Smaller is drawn earlier; in [0, 2**32). Equal random numbers are rare (one pair in a hundred images of 10000
        pixels) and are ordered arbitrarily.
    """
    if sampling == "raster":
        return torch.arange(like.shape[-1], device=like.device).expand_as(like)
    return torch.randint(LAST, like.shape, device=like.device, generator=generator)


def sort_groups(group: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sort pixels by group, and by drawing order within a group.

    Parameters
    ----------
    group : Tensor, shape (B, N), int64
        Number of the group, in [0, 2**31).
    order : Tensor, shape (B, N), int64
        From `order_pixels`.

    Returns
    -------
    group, order, pixel : Tensor, shape (B, N), int64
        Both sorted, and the index of the pixel at each place.
    """
    key, pixel = ((group << _KEY_BITS) | order).sort(-1)
    return key >> _KEY_BITS, key & LAST, pixel


@dataclass(frozen=True)
class Runs:
    """Runs of equal neighbours in each row.

    Attributes
    ----------
    first : Tensor, shape (B, L), bool
        Whether a run begins here.
    ordinal, rank, length : Tensor, shape (B, L), int64
        Number of the run in its row, place within the run, and how long the run is.
    """

    first: Tensor
    ordinal: Tensor
    rank: Tensor
    length: Tensor


def find_runs(group: Tensor) -> Runs:
    """Find the runs of equal neighbours.

    Parameters
    ----------
    group : Tensor, shape (B, L), int64
        Sorted along the last axis.
    """
    first = torch.ones_like(group, dtype=torch.bool)
    first[..., 1:] = group[..., 1:] != group[..., :-1]
    place = torch.arange(group.shape[-1], device=group.device)
    start = (place * first).cummax(-1).values
    ordinal = first.cumsum(-1) - 1
    length = torch.zeros_like(group).scatter_add_(-1, ordinal, torch.ones_like(group)).gather(-1, ordinal)
    return Runs(first, ordinal, place - start, length)


def compact(mask: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """List the places where a mask holds, in order, in rows of fixed size.

    Parameters
    ----------
    mask : Tensor, shape (B, L), bool
    size : int

    Returns
    -------
    place : Tensor, shape (B, size), int64
        The first `size` places; the last place of the row where there are fewer.
    present : Tensor, shape (B, size), bool
        Whether there is one.
    """
    count = mask.cumsum(-1)
    wanted = torch.arange(1, size + 1, device=mask.device)
    place = torch.searchsorted(count, wanted.expand(*mask.shape[:-1], size).contiguous())
    return place.clamp_(max=mask.shape[-1] - 1), wanted <= count[..., -1:]


def multiplicity(rank: Tensor, available: Tensor, wanted: int, cyclic: bool) -> Tensor:
    """Tell how often each pixel of a group is drawn.

    Parameters
    ----------
    rank : Tensor, int64
        Place of the pixel in the drawing order of its group.
    available : Tensor, int64, broadcastable with `rank`
        Size of the group.
    wanted : int
        Number of draws.
    cyclic : bool
        Whether a group smaller than `wanted` is repeated cyclically, the first pixels once more often.

    Returns
    -------
    Tensor, int64
        0 for pixels that are not drawn.
    """
    drawn = available.clamp(max=wanted)
    present = rank < drawn
    if not cyclic:
        return present.long()
    divisor = drawn.clamp(min=1)
    return torch.where(present, wanted // divisor + (rank < wanted % divisor), 0)


@dataclass(frozen=True)
class ClassSamples:
    """Pixels of each class, class after class, in drawing order.

    Attributes
    ----------
    pixel, label, order : Tensor, shape (B, S), int64
    present : Tensor, shape (B, S), bool
        False marks padding.
    offset, drawn : Tensor, shape (B, C), int64
        Where the samples of a class begin, and how many they are.
    """

    pixel: Tensor
    label: Tensor
    order: Tensor
    present: Tensor
    offset: Tensor
    drawn: Tensor


def draw_samples(available: Tensor, drawn: Tensor, order: Tensor, pixel: Tensor, size: int) -> ClassSamples:
    """Take the first pixels of each class.

    Parameters
    ----------
    available, drawn : Tensor, shape (B, C), int64
        Number of pixels of each class, and how many of them to take.
    order, pixel : Tensor, shape (B, N), int64
        Pixels sorted so that those of class 0 come first, then those of class 1 and so on, in drawing order.
    size : int
        Number S of places. Where an image needs more, the last classes get fewer.
    """
    end, begin = drawn.cumsum(1), available.cumsum(1) - available
    slot = torch.arange(size, device=drawn.device).expand(len(drawn), -1).contiguous()
    label = torch.searchsorted(end, slot, right=True)
    present = label < drawn.shape[1]
    label = label.clamp_(max=drawn.shape[1] - 1)
    offset = end - drawn
    place = begin.gather(1, label) + slot - offset.gather(1, label)
    place = torch.where(present, place, 0)
    return ClassSamples(pixel.gather(1, place), label, order.gather(1, place), present, offset, drawn)


def pool_samples(samples: ClassSamples, allowed: Tensor, num_samples: int) -> tuple[Tensor, Tensor]:
    """Draw from the union of several classes.

    The first `num_samples` pixels, in drawing order, of a union of classes are among the first `num_samples` of each
    of these classes, so the samples at hand are enough. With a random order the draw is uniform over the union; the
    draws for two true classes of an image share that order.

    Parameters
    ----------
    samples : ClassSamples
    allowed : Tensor, shape (B, C, C), bool
        For true class k and class c: whether c belongs to the union of k.
    num_samples : int

    Returns
    -------
    index : Tensor, shape (B, C, num_samples), int64
        Places in `samples` for each true class.
    available : Tensor, shape (B, C), int64
        How many of them hold.
    """
    size = samples.pixel.shape[1]
    place = torch.where(samples.present, samples.order, LAST).argsort(1)
    label = samples.label.gather(1, place).unsqueeze(1).expand(-1, allowed.shape[1], -1)
    member = allowed.gather(2, label) & samples.present.gather(1, place).unsqueeze(1)  # (B, C, S)
    count = member.cumsum(2, dtype=torch.int32)
    wanted = torch.arange(1, num_samples + 1, dtype=torch.int32, device=count.device)
    found = torch.searchsorted(count, wanted.expand(*count.shape[:2], -1).contiguous()).clamp_(max=size - 1)
    index = place.gather(1, found.flatten(1)).view_as(found)
    return index, count[..., -1].long().clamp(max=num_samples)
