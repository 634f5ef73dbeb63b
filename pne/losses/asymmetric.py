"""The conventional supervised contrast, with the pairs of the positive-negative equal loss."""

from __future__ import annotations

from torch import Tensor

from pne.losses.functional import asymmetric_terms
from pne.losses.misclassified import MisclassifiedContrast

__all__ = ["AsymmetricContrastLoss"]


class AsymmetricContrastLoss(MisclassifiedContrast):
    """Supervised contrastive loss of misclassified pixels [paper, Eq. `sup-loss`].

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

    def _terms(
        self,
        positive: Tensor,
        negative: Tensor,
        positive_count: Tensor,
        negative_count: Tensor,
        weight: Tensor | None,
    ) -> Tensor:
        return asymmetric_terms(positive, negative, positive_count, negative_count, self.options["temperature"])
