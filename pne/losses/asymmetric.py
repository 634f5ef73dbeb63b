"""The conventional supervised contrast, with the pairs of the positive-negative equal loss."""

from __future__ import annotations

import torch
from torch import Tensor

from pne.losses.pairs import MisclassifiedContrast, PairCosines
from pne.losses.similarity import ABSENT, softplus

__all__ = ["AsymmetricContrastLoss"]


class AsymmetricContrastLoss(MisclassifiedContrast):
    """Supervised contrastive loss of misclassified pixels.

    For an anchor i with positives P and negatives N::

        mean_p -log(exp(cos(i, p) / t) / (exp(cos(i, p) / t) + sum_n exp(cos(i, n) / t)))

    averaged over all anchors of the batch. Anchors, positives and negatives are drawn as for `PNELoss`, with the same
    options; there are no weights. The negatives are summed as drawn, so their number matters; what raster sampling
    repeats is summed as often. With ``negative_mean`` the sum is a mean, and the number of negatives does not matter.

    Raises
    ------
    pne.options.OptionError
        Unknown option, or a value that is not allowed.
    """

    def _evaluate(self, pairs: PairCosines) -> Tensor:
        positive, negative = (pairs.cosine / self.options["temperature"]).unbind(2)
        log_count = pairs.count[:, :, 1].log().clamp_(min=ABSENT)
        if self.options["negative_mean"]:
            log_count -= pairs.total[:, :, 1:].log()
        repulsion = torch.logsumexp(negative + log_count, 2, keepdim=True)
        terms = softplus(repulsion - positive) * pairs.count[:, :, 0]
        # Eq. 1 (`sup-loss`)
        return pairs.anchor_mean(terms.sum(2) / pairs.total[:, :, 0])
