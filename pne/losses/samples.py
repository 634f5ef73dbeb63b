"""Correct pixels drawn from each class of an image, the stock of positives and negatives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ClassSamples", "draw_samples"]


@dataclass(frozen=True)
class ClassSamples:
    """Up to `num_samples` correct pixels of each class, class after class, in drawing order.

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


def draw_samples(correct: Tensor, order: Tensor, pixel: Tensor, num_samples: int, size: int) -> ClassSamples:
    """Take the first pixels of each class.

    Parameters
    ----------
    correct : Tensor, shape (B, C), int64
        Number of correct pixels of each class.
    order, pixel : Tensor, shape (B, N), int64
        Pixels sorted so that the correct ones come first, class after class, in drawing order.
    num_samples : int
        Largest number of samples of a class.
    size : int
        Number S of places; at least the largest total of an image.
    """
    drawn = correct.clamp(max=num_samples)
    end, begin = drawn.cumsum(1), correct.cumsum(1) - correct
    slot = torch.arange(size, device=correct.device).expand(len(correct), -1).contiguous()
    label = torch.searchsorted(end, slot, right=True)
    present = label < correct.shape[1]
    label = label.clamp_(max=correct.shape[1] - 1)
    offset = end - drawn
    place = begin.gather(1, label) + slot - offset.gather(1, label)
    place = torch.where(present, place, 0)
    return ClassSamples(pixel.gather(1, place), label, order.gather(1, place), present, offset, drawn)
