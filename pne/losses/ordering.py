"""Draw, group and compact pixels by sorting: fixed shapes, no loop over groups, no host synchronisation.

All functions work along the last axis, row by row; a row is one image, or a whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Runs", "compact", "find_runs", "multiplicity", "order_pixels", "sort_groups"]

_KEY_BITS = 32  # of the order within a group; the group number takes the bits above
LAST = 2**_KEY_BITS - 1


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
