"""Cosines between pixels of an image, by one gather along the pixel axis, and sums of their exponentials."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

__all__ = ["ABSENT", "BLOCK", "gather_pixels", "normalise", "pair_cosines", "product", "softplus"]

BLOCK = 2**25
"""Most similarities computed at once: 128 MiB in float32."""

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
    scale = square.masked_fill(square <= _SMALLEST_SQUARE, torch.inf).rsqrt()
    return vectors * (scale.detach() if detach_norm else scale)


def pair_cosines(anchor: Tensor, sample: Tensor, index: Tensor, block: int | None = None) -> Tensor:
    """Compute the cosines of chosen pairs.

    All anchors of an image meet all its samples in one matrix product, of which the chosen pairs are kept. Where that
    product is larger than a block, it is taken in parts, and computed again for the gradient.

    Parameters
    ----------
    anchor : Tensor, shape (B, D, A)
        Unit length.
    sample : Tensor, shape (B, D, S), same dtype
        Unit length.
    index : Tensor, shape (B, A, K), int64
        Places among the samples.
    block : int, optional
        Most similarities at once, `BLOCK` if None.

    Returns
    -------
    Tensor, shape (B, A, K)
    """
    rows = max(1, (BLOCK if block is None else block) // (sample.shape[0] * sample.shape[2]))
    if rows >= anchor.shape[2]:
        return _chosen(anchor, sample, index)
    parts = zip(anchor.split(rows, 2), index.split(rows, 1), strict=True)
    return torch.cat(
        [checkpoint(_chosen, a, sample, i, use_reentrant=False, preserve_rng_state=False) for a, i in parts], 1
    )


def _chosen(anchor: Tensor, sample: Tensor, index: Tensor) -> Tensor:
    return product(anchor.transpose(1, 2), sample).gather(2, index)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        return left @ right

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors
        with torch.autocast(upstream.device.type, enabled=False):
            return (
                upstream @ right.mT if ctx.needs_input_grad[0] else None,
                left.mT @ upstream if ctx.needs_input_grad[1] else None,
            )


def product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices, (..., M, D) with (..., D, N), at their own precision.

    Autocast would compute the gradient of a plain product in half precision where the backward pass runs inside it.
    """
    return _Product.apply(left, right)


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + exp(x)), exact in float64, too."""
    return F.softplus(x, threshold=40.0)
