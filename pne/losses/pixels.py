"""Pixels by class: which are right, and drawing from each class, by sorting.

Fixed shapes, no loop over groups, no host synchronisation. A row is one image, or a whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = [
    "LAST",
    "ClassSamples",
    "PixelClasses",
    "classify_pixels",
    "compact",
    "count_members",
    "draw_samples",
    "multiplicity",
    "pool_samples",
    "random_numbers",
    "resize_labels",
    "shuffle",
    "sort_groups",
]

LAST = 2**31 - 1
"""Above all random numbers; with it, equal ones are rare: one pair in fifty images of 10000 pixels."""


@dataclass(frozen=True)
class PixelClasses:
    """True and predicted class of every pixel, in raster order; N = h * w.

    Attributes
    ----------
    label : Tensor, shape (B, N), int64
        True class; `num_classes` where the pixel is ignored, so that it is no class and never predicted.
    predicted : Tensor, shape (B, N), int64
        Class of the largest logit.
    num_classes : int
    """

    label: Tensor
    predicted: Tensor
    num_classes: int

    @cached_property
    def correct(self) -> Tensor:
        """Pixels predicted rightly, (B, N), bool."""
        return self.predicted == self.label

    @property
    def wrong(self) -> Tensor:
        """Mistaken pixels that are not ignored, (B, N), bool."""
        return (self.label < self.num_classes) & ~self.correct


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
        A view where the sizes divide.
    """
    for axis, size in ((1, height), (2, width)):
        given = labels.shape[axis]
        if given % size == 0:
            labels = labels[(slice(None),) * axis + (slice(None, None, given // size),)]
        else:
            index = torch.arange(size, device=labels.device) * given // size  # integers: exact at any size
            labels = labels.index_select(axis, index)
    return labels


def classify_pixels(logits: Tensor, labels: Tensor, ignore_index: int) -> PixelClasses:
    """Tell correct pixels from wrong ones.

    Parameters
    ----------
    logits : Tensor, shape (B, C, h, w), floating
    labels : Tensor, shape (B, H, W), integer
        At any size. Pixels labelled `ignore_index`, or with a number that is no class, are ignored.
    ignore_index : int
    """
    classes = logits.shape[1]
    label = resize_labels(labels, *logits.shape[2:]).long().clamp(-1, classes).remainder_(classes + 1).flatten(1)
    if 0 <= ignore_index < classes:
        label = label.masked_fill(label == ignore_index, classes)
    predicted = logits.detach().flatten(2).max(1).indices  # the first of equal maxima; faster than argmax on the CPU
    return PixelClasses(label, predicted, classes)


def count_members(group: Tensor, groups: int) -> Tensor:
    """Count the pixels of each group, (B, N) to (B, groups), int64."""
    one = group.new_ones(1, 1).expand_as(group)
    return group.new_zeros(len(group), groups).scatter_add_(1, group, one)


def random_numbers(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw int32 numbers below `LAST`, in the shape and on the device of a tensor."""
    return torch.randint(LAST, like.shape, dtype=torch.int32, device=like.device, generator=generator)


def shuffle(sampling: str, like: Tensor, generator: torch.Generator | None) -> Tensor | None:
    """Put all pixels of a batch into drawing order.

    Parameters
    ----------
    sampling : {'random', 'raster'}
        A uniformly random order, or row by row.
    like : Tensor, shape (B, N)
        Gives shape and device.
    generator : torch.Generator or None
        Source of the random numbers; the global one of the device if None.

    Returns
    -------
    Tensor, shape (B * N,), int64, or None
        Indices into the batch; None stands for row by row.
    """
    return None if sampling == "raster" else random_numbers(like.flatten(), generator).sort().indices


def sort_groups(group: Tensor, groups: int, shuffled: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sort the pixels of each image by group, and by drawing order within a group.

    Parameters
    ----------
    group : Tensor, shape (B, N), int64
        Number of the group, below `groups`; ``B * groups`` is below 2**31.
    groups : int
    shuffled : Tensor, shape (B * N,), int64, or None
        From `shuffle`.

    Returns
    -------
    pixel, order : Tensor, shape (B, N), int64
        The index of the pixel at each place, and its place in the drawing order of the batch.
    """
    images, length = group.shape
    image = torch.arange(images, device=group.device).unsqueeze(1)
    key = torch.add(group, image, alpha=groups).int().flatten()
    if shuffled is not None:
        key = key.gather(0, shuffled)
    order = key.sort(stable=True).indices
    pixel = order if shuffled is None else shuffled.gather(0, order)
    return torch.sub(pixel.view_as(group), image, alpha=length), order.view_as(group)


def compact(mask: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """List the places where a mask holds, in order, in rows of fixed size.

    Parameters
    ----------
    mask : Tensor, shape (B, L), bool
    size : int
        At most L.

    Returns
    -------
    place : Tensor, shape (B, size), int64
        The first `size` places; where there are fewer, some places, all different from each other.
    present : Tensor, shape (B, size), bool
        Whether there is one.
    """
    count = mask.cumsum(1, dtype=torch.int32)
    slot = torch.arange(size, device=mask.device)
    wanted = (slot + 1).int().expand(len(mask), -1)
    place = torch.searchsorted(count, wanted.contiguous())
    present = wanted <= count[:, -1:]
    return torch.where(present, place, slot), present


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
    divisor = drawn.clamp_(min=1)
    return (wanted // divisor + (rank < wanted % divisor)) * present


@dataclass(frozen=True)
class ClassSamples:
    """Pixels of each class, class after class, in drawing order.

    Attributes
    ----------
    pixel, label, place : Tensor, shape (B, S), int64
        Index of the pixel, its class, and its place among the pixels sorted by class.
    present : Tensor, shape (B, S), bool
        False marks padding, whose places all differ from each other.
    offset, drawn : Tensor, shape (B, C), int64
        Where the samples of a class begin, and how many they are.
    """

    pixel: Tensor
    label: Tensor
    place: Tensor
    present: Tensor
    offset: Tensor
    drawn: Tensor


def draw_samples(available: Tensor, drawn: Tensor, pixel: Tensor, size: int) -> ClassSamples:
    """Take the first pixels of each class.

    Parameters
    ----------
    available, drawn : Tensor, shape (B, C), int64
        Number of pixels of each class, and how many of them to take.
    pixel : Tensor, shape (B, N), int64
        Pixels sorted so that those of class 0 come first, then those of class 1 and so on, in drawing order.
    size : int
        Number S of places, at most N. Where an image needs more, the last classes get fewer.
    """
    end = drawn.cumsum(1)
    offset = end - drawn
    shift = available.cumsum(1) - available - offset
    slot = torch.arange(size, device=drawn.device)
    label = torch.searchsorted(end, slot.expand(len(drawn), -1).contiguous(), right=True)
    present = label < drawn.shape[1]
    label.clamp_(max=drawn.shape[1] - 1)
    place = torch.where(present, shift.gather(1, label) + slot, slot)
    return ClassSamples(pixel.gather(1, place), label, place, present, offset, drawn)


def pool_samples(samples: ClassSamples, order: Tensor, allowed: Tensor, num_samples: int) -> tuple[Tensor, Tensor]:
    """Draw from the union of several classes.

    The first `num_samples` pixels, in drawing order, of a union of classes are among the first `num_samples` of each
    of these classes, so the samples at hand are enough. With a random order the draw is uniform over the union; the
    draws for two true classes of an image share that order.

    Parameters
    ----------
    samples : ClassSamples
    order : Tensor, shape (B, N), int64
        From `sort_groups`.
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
    place = order.gather(1, samples.place).masked_fill_(~samples.present, LAST).argsort(1)
    label = samples.label.gather(1, place).unsqueeze(1).expand(-1, allowed.shape[1], -1)
    member = allowed.gather(2, label) & samples.present.gather(1, place).unsqueeze(1)  # (B, C, S)
    count = member.cumsum(2, dtype=torch.int32)
    wanted = torch.arange(1, num_samples + 1, dtype=torch.int32, device=count.device)
    found = torch.searchsorted(count, wanted.expand(*count.shape[:2], -1).contiguous()).clamp_(max=size - 1)
    index = place.gather(1, found.flatten(1)).view_as(found)
    return index, count[..., -1].long().clamp(max=num_samples)
