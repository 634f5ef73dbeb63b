"""The positive-negative equal contrastive loss."""

from __future__ import annotations

import torch
from torch import Tensor

from pne.losses.draw import Draw
from pne.losses.pairs import MisclassifiedContrast, PairCosines
from pne.losses.similarity import ABSENT, gather_pixels, softplus

__all__ = ["PNELoss"]

_SMALLEST_WEIGHT = 1e-6


class PNELoss(MisclassifiedContrast):
    """Positive-negative equal contrast of misclassified pixels.

    For an anchor i, labelled k and predicted l, with its negatives N (correct pixels of l) and positives P (correct
    pixels of k)::

        log(1 + mean_n exp(cos(i, n) / t) / mean_p (w_p / wbar) exp(cos(i, p) / t))

    averaged over all anchors of the batch. Means in place of the paper's sums keep its |N| = |P| where a class has
    fewer pixels than are to be drawn. The weights are constants. The defaults are the *paper* preset; *authors*
    is what the released code does. The two differ in much: see the options.

    Parameters
    ----------
    temperature : float
        t.
    num_samples : int
        Positives and negatives of an anchor: so many distinct pixels of the class, or as many as the image has.
        Anchors of one image and class share them.
    max_anchors : int or None
        Largest number of anchor pixels in an image, drawn uniformly from the misclassified pixels that can be
        contrasted. None takes all, at the price of one host synchronisation per call.
    max_set_size : int or None
        Sets (anchors of one image, true and predicted class) with more pixels are skipped.
    anchors_per_set : int or None
        Largest number of anchor pixels from one set; applied before `max_anchors`.
    sampling : {'random', 'raster'}
        Distinct pixels uniformly at random, or the first ones row by row. With raster, classes with fewer than
        `num_samples` pixels and sets with fewer than `anchors_per_set` are repeated cyclically up to that number; the
        repeats are computed once and counted.
    detach_samples : bool
        No gradient through positives and negatives.
    detach_anchor_norm : bool
        No gradient through the length of the anchor.
    anchor_sets : {'individual', 'mixed'}
        'mixed' joins all errors of a true class k in one set; its anchors share the negatives, drawn from the union of
        the correct pixels of all classes for which the set's pixels were mistaken.
    negatives : {'corresponding', 'hard', 'random'}
        'corresponding' as above. The candidates of the others are the correct pixels of all classes but k: 'hard'
        takes the most similar to the mean of the set's unit-length drawn anchors, 'random' draws uniformly, whatever
        `sampling` says; the sets of one image share the random order.
    positive_weight : {'softmax', 'logit'} or None
        w_p: largest class probability of the pixel, its largest logit clamped to at least 1e-6, or 1.
    normalize_weight : bool
        Divide by wbar, the mean over the drawn positives.
    reduction : {'anchor_mean', 'set_size'}
        'set_size' multiplies the mean by (mean size of the sets with a drawn anchor) / `num_samples`.
    empty_negatives : {'drop', 'anchors'}
        What becomes of anchors without a negative: left out, or up to `num_samples` drawn anchors of their set serve as
        negatives. With 'anchors', as in the released code, only errors count whose predicted class occurs in the labels
        of the image.
    anchors_from : {'errors', 'labelled'}
        'labelled' makes anchors of correct pixels, too: l is their second class, that of the largest score but the
        true class's, and no pixel is its own positive.
    anchor_draw : {'uniform', 'balanced'}
        How `max_anchors` draws. 'balanced' takes a pixel of each set, then a second of each, and so on, and random ones
        in the last round.

    Notes
    -----
    The statistics `weight_mean` and `weight_std` (population) are of the raw w over all drawn positives of the batch,
    each pixel once; 0 without weights. The similarities are means over the anchors of the mean cosine to their
    positives and negatives. `anchors` counts distinct pixels.

    Raises
    ------
    pne.options.OptionError
        Unknown option, or a value that is not allowed.

    Examples
    --------
    >>> embeddings = torch.randn(2, 8, 16, 16, requires_grad=True)
    >>> logits, labels = torch.randn(2, 3, 16, 16), torch.randint(3, (2, 64, 64))
    >>> loss = PNELoss(temperature=0.5)(embeddings, logits, labels)
    >>> loss.backward()
    >>> PNELoss.from_preset("authors", temperature=0.5).options["max_set_size"]
    199
    """

    def _weigh(self, logits: Tensor, draw: Draw, dtype: torch.dtype) -> Tensor | None:
        if self.options["positive_weight"] is None:
            return None
        columns = draw.column[:, : draw.positive_column.shape[1]]
        scores = gather_pixels(logits.detach(), columns).to(dtype)  # (B, C, P)
        if self.options["positive_weight"] == "logit":
            return scores.amax(1).clamp(min=_SMALLEST_WEIGHT)
        return torch.exp(scores.amax(1) - scores.logsumexp(1))

    def _evaluate(self, pairs: PairCosines) -> Tensor:
        log_share = pairs.count.log().clamp_(min=ABSENT)
        if pairs.weight is not None:
            log_weight = pairs.weight.log()
            if self.options["normalize_weight"]:
                mean = (pairs.weight * pairs.count[:, :, 0]).sum(2) / pairs.total[:, :, 0]
                log_weight -= mean.clamp_(min=torch.finfo(mean.dtype).tiny).log_().unsqueeze(2)
            log_share[:, :, 0] += log_weight
        # The denominator and the numerator of Eq. 8 (`deqn_ex1a`, the first of that label), as logarithms of means
        scores = torch.logsumexp(pairs.cosine / self.options["temperature"] + log_share, 3) - pairs.total.log()
        attraction, repulsion = scores.unbind(2)
        # Eq. 8, log(1 + ratio) of an anchor, and Eq. 9 (`deqn_ex1a`, the second of that label), their mean over anchors
        return pairs.anchor_mean(softplus(repulsion - attraction))
