"""Cosines between pixels of an image, by one gather along the pixel axis."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["ABSENT", "gather_pixels", "normalise", "pick"]

ABSENT = -1e30
"""Logarithm of nothing: it vanishes beside any similarity, and, being finite, gives no NaN where nothing is left."""

_SMALLEST_SQUARE = 1e-24


def gather_pixels(embeddings: Tensor, pixel: Tensor) -> Tensor:
    """Take pixels out of an embedding map, as float32 or wider.

    Parameters
    ----------
    embeddings : Tensor, shape (B, D, h, w), floating
    pixel : Tensor, shape (B, P), int64
        Raster indices. One gather for all is what keeps the backward pass cheap: each gather fills a whole map.

    Returns
    -------
    Tensor, shape (B, D, P), at least float32
    """
    index = pixel.unsqueeze(1).expand(-1, embeddings.shape[1], -1)
    return embeddings.flatten(2).gather(2, index).to(torch.promote_types(embeddings.dtype, torch.float32))


def normalise(vectors: Tensor, dim: int, detach_norm: bool = False) -> Tensor:
    """Bring vectors to unit length; those shorter than 1e-12 become zero, with zero gradient.

    Parameters
    ----------
    vectors : Tensor, floating
    dim : int
        Axis of the components.
    detach_norm : bool
        Whether the length is a constant in the gradient.
    """
    square = vectors.square().sum(dim, keepdim=True)
    present = square > _SMALLEST_SQUARE
    scale = torch.where(present, square, 1).rsqrt() * present
    return vectors * (scale.detach() if detach_norm else scale)


def pick(columns: Tensor, index: Tensor) -> Tensor:
    """Take entries of each image's row: (B, S) and (B, A, K) to (B, A, K)."""
    return columns.gather(1, index.flatten(1)).view_as(index)
