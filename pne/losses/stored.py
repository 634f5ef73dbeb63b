"""Similarities with stored vectors, of which there may be millions: one pass over them, and no copy of them all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pne.losses.similarity import ABSENT, BLOCK

__all__ = ["StoredSimilarities"]

_NEGLIGIBLE = -60.0
"""exp of it vanishes beside 1 even in float64 and times a million; exponentials that underflow are slow on CPUs."""


class StoredSimilarities(torch.autograd.Function):
    """Contrast vectors with stored ones: ``StoredSimilarities.apply(vectors, classes, memory, filled)``.

    The rows of the memory are taken in blocks. Along with the sum of the exponentials goes the sum of the vectors that
    they weigh, which is all that the gradient needs; both are rescaled whenever a block holds a larger similarity
    (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax").

    Parameters
    ----------
    vectors : Tensor, shape (M, D), at least float32
        Divided by the temperature. The only input with a gradient, and with none of second order.
    classes : Tensor, shape (M,), int64
    memory : Tensor, shape (C, R, D), same dtype as `vectors`
        Constant.
    filled : Tensor, shape (C, R), bool
        Which rows hold a vector.

    Returns
    -------
    repulsion : Tensor, shape (M,)
        log sum_n exp(<v, n>) over all vectors of other classes; about `ABSENT` where there are none.
    own : Tensor, shape (M, R)
        <v, p> with the rows of the vector's class, filled or not.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, classes: Tensor, memory: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
        number, (stored_classes, _, dim) = len(vectors), memory.shape
        block = max(1, BLOCK // max(1, number * stored_classes))
        own_place = classes.view(-1, 1, 1)
        highest = vectors.new_full((number, 1), ABSENT)
        total, weighted = vectors.new_zeros(number, 1), vectors.new_zeros(number, dim)
        own = []
        for part, present in zip(memory.split(block, 1), filled.split(block, 1), strict=True):
            flat = part.reshape(-1, dim)
            similarity = (vectors @ flat.T).view(number, stored_classes, -1)
            index = own_place.expand(-1, 1, part.shape[1])
            own.append(similarity.gather(1, index).squeeze(1))
            similarity.masked_fill_(~present, ABSENT).scatter_(1, index, ABSENT)
            similarity = similarity.flatten(1)
            higher = torch.maximum(highest, similarity.amax(1, keepdim=True))
            weight = similarity.sub_(higher).clamp_(min=_NEGLIGIBLE).exp_()
            earlier = (highest - higher).exp()
            total = total * earlier + weight.sum(1, keepdim=True)
            weighted = weighted * earlier + weight @ flat
            highest = higher
        ctx.save_for_backward(weighted / total, classes, memory)
        return (highest + total.log()).squeeze(1), torch.cat(own, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_repulsion: Tensor, of_own: Tensor) -> tuple[Tensor, None, None, None]:
        mean, classes, memory = ctx.saved_tensors
        with torch.autocast(mean.device.type, enabled=False):
            gradient = of_repulsion.unsqueeze(1) * mean
            block = max(1, BLOCK // max(1, mean.numel()))
            for part, weight in zip(memory.split(block, 1), of_own.split(block, 1), strict=True):
                gradient = torch.baddbmm(gradient.unsqueeze(1), weight.unsqueeze(1), part[classes]).squeeze(1)
        return gradient, None, None, None
