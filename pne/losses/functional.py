"""The cross-image contrast as functions of vectors, in log space: within a batch, or with a memory of any size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pne.losses.similarity import ABSENT, BLOCK, product, softplus

__all__ = ["contrast_with_batch", "contrast_with_memory", "pixel_contrast"]


def contrast_with_batch(vectors: Tensor, classes: Tensor, valid: Tensor, temperature: float) -> tuple[Tensor, ...]:
    """Contrast vectors among themselves; see `pixel_contrast`.

    Parameters
    ----------
    vectors : Tensor, shape (M, D), at least float32
    classes : Tensor, shape (M,), int64
    valid : Tensor, shape (M,), bool
        False for padding.
    temperature : float

    Returns
    -------
    term : Tensor, shape (M,)
        mean_p -log(e_p / (e_p + sum_n e_n)); 0 for padding and where there is no positive.
    has_positive : Tensor, shape (M,), bool
    positive_similarity, negative_similarity : Tensor, shape (M,)
        Detached mean dot products with the positives and the negatives, 0 where there are none.
    """
    similarity = product(vectors, vectors.T)
    same = classes.unsqueeze(1) == classes
    pair = valid.unsqueeze(1) & valid
    negative = pair & ~same
    positive = (pair & same).fill_diagonal_(False)
    scores, constant = similarity / temperature, similarity.detach()
    repulsion = torch.logsumexp(scores.masked_fill(~negative, ABSENT), 1, keepdim=True)
    positives = positive.sum(1)
    term = _masked_mean(softplus(repulsion - scores), positive, positives)
    negatives = _masked_mean(constant, negative, negative.sum(1))
    return term, positives > 0, _masked_mean(constant, positive, positives), negatives


def contrast_with_memory(
    vectors: Tensor, classes: Tensor, valid: Tensor, memory: Tensor, filled: Tensor | None, temperature: float
) -> tuple[Tensor, ...]:
    """Contrast vectors with stored ones; see `pixel_contrast`.

    The similarities with all stored vectors never exist at once. The gradient has no second derivatives.

    Parameters
    ----------
    vectors, classes, valid, temperature
        As for `contrast_with_batch`.
    memory : Tensor, shape (C, R, D), same dtype as `vectors`
        Constant.
    filled : Tensor, shape (C, R), bool, or None
        Which rows hold a vector; all if None.

    Returns
    -------
    Same as `contrast_with_batch`.
    """
    memory = memory.detach()
    if filled is None:
        filled = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
    repulsion, own = _StoredSimilarities.apply(vectors / temperature, classes, memory, filled)
    positive = filled[classes] & valid.unsqueeze(1)
    positives = positive.sum(1)
    term = _masked_mean(softplus(repulsion.unsqueeze(1) - own), positive, positives)
    similarity = _masked_mean(own.detach(), positive, positives) * temperature
    return term, positives > 0, similarity, _negative_similarity(vectors.detach(), classes, memory, filled) * valid


def _negative_similarity(vectors: Tensor, classes: Tensor, memory: Tensor, filled: Tensor) -> Tensor:
    """Mean dot product, (M,), with all stored vectors of other classes: that with their mean."""
    total = (filled.unsqueeze(1).to(memory.dtype) @ memory).squeeze(1)  # (C, D)
    count = filled.sum(1)
    others = total.sum(0) - total[classes]
    return (vectors * others).sum(1) / (count.sum() - count[classes]).clamp(min=1)


def _masked_mean(values: Tensor, mask: Tensor, number: Tensor) -> Tensor:
    return (values * mask).sum(1) / number.clamp(min=1)


def pixel_contrast(
    anchors: Tensor,
    classes: Tensor,
    memory: Tensor | None = None,
    temperature: float = 0.1,
    base_temperature: float = 0.07,
) -> Tensor:
    """Supervised contrast of sampled pixels across images (CIPC; Wang et al. 2021).

    ``-(t / t_base) * mean_p log(e_p / (e_p + sum_n e_n))`` with ``e_x = exp(<anchor, x> / t)``, averaged over the
    anchors that have a positive. Positives share the anchor's class, all others are negatives. The denominator holds
    one positive and all negatives. Without negatives a term is 0 and counts.

    Departs from the original code where that is wrong: class 0 of the memory takes part, memory columns are never
    masked as if they were the anchor itself, and anchors without a positive are left out instead of giving NaN.

    Parameters
    ----------
    anchors : Tensor, shape (A, V, D), floating
        V unit-length vectors for each of A (image, class) pairs; not normalised here.
    classes : Tensor, shape (A,), integer
        Class of each row; may recur.
    memory : Tensor, shape (C, M, D), floating, optional
        M stored vectors of each class, constant. If given they are the only candidates, otherwise all other anchors.
    temperature, base_temperature : float
        Dimensionless, > 0.

    Returns
    -------
    Tensor, scalar, at least float32
        In nats; 0, connected to `anchors`, where no anchor has a positive. Gradient flows through both sides of pairs
        of anchors.

    Raises
    ------
    ValueError
        Shapes that do not go together, or a temperature that is not positive.
    """
    if anchors.dim() != 3 or classes.shape != anchors.shape[:1]:
        shapes = f"{tuple(anchors.shape)} and {tuple(classes.shape)}"
        raise ValueError(f"expected anchors (A, V, D) and classes (A,); got {shapes}")
    if memory is not None and (memory.dim() != 3 or memory.shape[2] != anchors.shape[2]):
        raise ValueError(f"expected memory (C, M, D) with D = {anchors.shape[2]}; got {tuple(memory.shape)}")
    if not (temperature > 0 and base_temperature > 0):
        raise ValueError(f"temperatures must be > 0; got {temperature} and {base_temperature}")
    with torch.autocast(anchors.device.type, enabled=False):
        vectors = anchors.to(torch.promote_types(anchors.dtype, torch.float32)).flatten(0, 1)
        rows = classes.long().unsqueeze(1).expand(anchors.shape[:2]).flatten()
        valid = torch.ones_like(rows, dtype=torch.bool)
        if memory is None:
            term, has_positive, *_ = contrast_with_batch(vectors, rows, valid, temperature)
        else:
            term, has_positive, *_ = contrast_with_memory(
                vectors, rows, valid, memory.to(vectors.dtype), None, temperature
            )
        mean = (term * has_positive).sum() / has_positive.sum().clamp(min=1)
        return mean * (temperature / base_temperature)


_NEGLIGIBLE = -60.0
"""exp of it vanishes beside 1 even in float64 and times a million; exponentials that underflow are slow on CPUs."""


class _StoredSimilarities(torch.autograd.Function):
    """Contrast vectors with stored ones: one pass over what may be millions of vectors.

    The rows of the memory are taken in blocks. Along with the sum of the exponentials goes the mean of the vectors that
    they weigh, which is all that the gradient needs; the blocks are put together by the logarithms of their sums.

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
        (number, dim), stored_classes = vectors.shape, len(memory)
        ctx.block = max(1, BLOCK // max(1, number * stored_classes))
        own_place = classes.view(-1, 1, 1)
        own, sums, means = [], [], []
        for part, present in zip(memory.split(ctx.block, 1), filled.split(ctx.block, 1), strict=True):
            flat = part.reshape(-1, dim)
            similarity = (vectors @ flat.T).view(number, stored_classes, -1)
            index = own_place.expand(-1, 1, part.shape[1])
            own.append(similarity.gather(1, index).squeeze(1))
            similarity.masked_fill_(~present, ABSENT).scatter_(1, index, ABSENT)
            similarity = similarity.flatten(1)
            highest = similarity.amax(1, keepdim=True)
            weight = similarity.sub_(highest).clamp_(min=_NEGLIGIBLE).exp_()
            total = weight.sum(1, keepdim=True)
            means.append((weight @ flat) / total)
            sums.append(highest + total.log_())
        repulsion, mean = sums[0], means[0]
        if len(sums) > 1:
            stacked = torch.stack(sums)
            repulsion = stacked.logsumexp(0)
            mean = (torch.stack(means) * (stacked - repulsion).exp_()).sum(0)
        ctx.save_for_backward(mean, classes, memory)
        return repulsion.squeeze(1), torch.cat(own, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_repulsion: Tensor, of_own: Tensor) -> tuple[Tensor, None, None, None]:
        mean, classes, memory = ctx.saved_tensors
        with torch.autocast(mean.device.type, enabled=False):
            gradient = of_repulsion.unsqueeze(1) * mean
            for part, weight in zip(memory.split(ctx.block, 1), of_own.split(ctx.block, 1), strict=True):
                spread = weight.new_zeros(len(weight), len(memory), weight.shape[1])
                spread.scatter_(1, classes.view(-1, 1, 1).expand_as(weight.unsqueeze(1)), weight.unsqueeze(1))
                gradient.addmm_(spread.flatten(1), part.reshape(-1, part.shape[2]))
        return gradient, None, None, None
