"""The conventional supervised contrast, with the pairs of the positive-negative equal loss."""

from __future__ import annotations

import torch
from torch import Tensor

from pne.losses.pairs import MisclassifiedContrast, PairCosines
from pne.losses.similarity import log_count, softplus

__all__ = ["AsymmetricContrastLoss"]


class AsymmetricContrastLoss(MisclassifiedContrast):
    """Supervised contrastive loss of misclassified pixels.

    For an anchor i with positives P and negatives N::

        mean_p -log(exp(cos(i, p) / t) / (exp(cos(i, p) / t) + sum_n exp(cos(i, n) / t)))

    averaged over all anchors of the batch. Anchors, positives and negatives are drawn as for `PNELoss`, with the same
    options; there are no weights. The negatives are summed as drawn, so their number matters; what raster sampling
    repeats is summed as often.

    Raises
    ------
    pne.options.OptionError
        Unknown option, or a value that is not allowed.
    """

    def _evaluate(self, pairs: PairCosines) -> Tensor:
        temperature, dtype = self.options["temperature"], pairs.positive.dtype
        log_negative = log_count(pairs.negative_count, dtype)
        repulsion = torch.logsumexp(pairs.negative / temperature + log_negative, -1, keepdim=True)
        terms = softplus(repulsion - pairs.positive / temperature) * pairs.positive_count
        # Eq. 1 (`sup-loss`)
        return pairs.anchor_mean(terms.sum(-1) / pairs.positive_count.sum(-1).clamp(min=1))
