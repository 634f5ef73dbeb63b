"""Pixels drawn from each of many groups at once, such as the correct pixels of each class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ClassSamples", "draw_samples"]


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
