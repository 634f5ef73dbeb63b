"""The contrasts as pure functions of similarities or embeddings, in log space."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pne.losses.similarity import ABSENT, product
from pne.losses.stored import StoredSimilarities

__all__ = ["asymmetric_terms", "contrast_with_batch", "contrast_with_memory", "pixel_contrast", "pne_terms"]


def _log_count(count: Tensor, dtype: torch.dtype) -> Tensor:
    return count.to(dtype).log().masked_fill(count == 0, ABSENT)


def _softplus(x: Tensor) -> Tensor:
    return F.softplus(x, threshold=40.0)  # exact in float64, too


def pne_terms(
    positive: Tensor,
    negative: Tensor,
    positive_count: Tensor,
    negative_count: Tensor,
    weight: Tensor | None,
    temperature: float,
    normalize_weight: bool,
) -> Tensor:
    """Contrast each anchor with its positives and negatives on equal terms.

    log(1 + mean_n exp(s_n / t) / mean_p (w_p / wbar) exp(s_p / t)) [paper, per-positive weight in Eq. `change-loss`].
    Means in place of the paper's sums keep its |N| = |P| where a class has fewer pixels than are to be drawn.

    Parameters
    ----------
    positive, negative : Tensor, shape (..., K), at least float32
        Cosines to the anchor.
    positive_count, negative_count : Tensor, shape (..., K), int64
        How often each counts; 0 for padding. Where all are 0, the value is finite and means nothing.
    weight : Tensor, shape (..., K), same dtype, or None
        Weights of the positives, > 0.
    temperature : float
    normalize_weight : bool
        Whether to divide the weights by their mean over the positives of the anchor.

    Returns
    -------
    Tensor, shape (...,)
        >= 0, in nats.
    """
    dtype = positive.dtype
    log_positive = _log_count(positive_count, dtype)
    positives = positive_count.sum(-1)
    if weight is not None:
        log_positive = log_positive + weight.log()
        if normalize_weight:
            mean = (weight * positive_count).sum(-1) / positives.clamp(min=1)
            log_positive = log_positive - torch.where(positives > 0, mean, 1).log().unsqueeze(-1)
    attraction = torch.logsumexp(positive / temperature + log_positive, -1) - _log_total(positives, dtype)
    log_negative = _log_count(negative_count, dtype)
    repulsion = torch.logsumexp(negative / temperature + log_negative, -1) - _log_total(negative_count.sum(-1), dtype)
    return _softplus(repulsion - attraction)


def _log_total(total: Tensor, dtype: torch.dtype) -> Tensor:
    return total.clamp(min=1).to(dtype).log()


def asymmetric_terms(
    positive: Tensor, negative: Tensor, positive_count: Tensor, negative_count: Tensor, temperature: float
) -> Tensor:
    """Contrast each positive of an anchor with the sum over its negatives.

    mean_p -log(exp(s_p / t) / (exp(s_p / t) + sum_n exp(s_n / t))) [paper, Eq. `sup-loss`].

    Parameters and result as for `pne_terms`.
    """
    repulsion = torch.logsumexp(negative / temperature + _log_count(negative_count, positive.dtype), -1, keepdim=True)
    terms = _softplus(repulsion - positive / temperature) * positive_count
    return terms.sum(-1) / positive_count.sum(-1).clamp(min=1)


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
    repulsion = torch.logsumexp((similarity / temperature).masked_fill(~negative, ABSENT), 1, keepdim=True)
    term = _masked_mean(_softplus(repulsion - similarity / temperature), positive)
    constant = similarity.detach()
    return term, positive.any(1), _masked_mean(constant, positive), _masked_mean(constant, negative)


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
    repulsion, own = StoredSimilarities.apply(vectors / temperature, classes, memory, filled)
    positive = filled[classes] & valid.unsqueeze(1)
    term = _masked_mean(_softplus(repulsion.unsqueeze(1) - own), positive)
    similarity = _masked_mean(own.detach() * temperature, positive)
    return term, positive.any(1), similarity, _negative_similarity(vectors.detach(), classes, memory, filled) * valid


def _negative_similarity(vectors: Tensor, classes: Tensor, memory: Tensor, filled: Tensor) -> Tensor:
    """Mean dot product, (M,), with all stored vectors of other classes: that with their mean."""
    total = (filled.unsqueeze(1).to(memory.dtype) @ memory).squeeze(1)  # (C, D)
    count = filled.sum(1)
    others = total.sum(0) - total[classes]
    return (vectors * others).sum(1) / (count.sum() - count[classes]).clamp(min=1)


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)


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
