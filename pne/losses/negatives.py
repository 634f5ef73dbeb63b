"""Negatives of the ablations: of several classes, drawn in order, or the most similar ones."""

from __future__ import annotations

import torch
from torch import Tensor

from pne.losses.anchors import Anchors
from pne.losses.inputs import PixelClasses
from pne.losses.ordering import LAST
from pne.losses.samples import ClassSamples
from pne.losses.similarity import BLOCK, gather_pixels, normalise

__all__ = ["hardest_pixels", "pool_samples"]


def pool_samples(samples: ClassSamples, allowed: Tensor, num_samples: int) -> tuple[Tensor, Tensor]:
    """Draw from the union of several classes.

    The first `num_samples` pixels, in drawing order, of a union of classes are among the first `num_samples` of each
    of these classes, so the samples at hand are enough. With a random order the draw is uniform over the union; the
    draws for two true classes of an image share that order.

    Parameters
    ----------
    samples : ClassSamples
    allowed : Tensor, shape (B, C, C), bool
        For true class k and class c: whether c belongs to the union of k.
    num_samples : int

    Returns
    -------
    index : Tensor, shape (B, C, num_samples), int64
        Places in `samples` for each true class.
    available : Tensor, shape (B, C), int64
        How many of them hold.
    """
    size = samples.pixel.shape[1]
    place = torch.where(samples.present, samples.order, LAST).argsort(1)
    label = samples.label.gather(1, place).unsqueeze(1).expand(-1, allowed.shape[1], -1)
    member = allowed.gather(2, label) & samples.present.gather(1, place).unsqueeze(1)  # (B, C, S)
    count = member.cumsum(2, dtype=torch.int32)
    wanted = torch.arange(1, num_samples + 1, dtype=torch.int32, device=count.device)
    found = torch.searchsorted(count, wanted.expand(*count.shape[:2], -1).contiguous()).clamp_(max=size - 1)
    index = place.gather(1, found.flatten(1)).view_as(found)
    return index, count[..., -1].long().clamp(max=num_samples)


def hardest_pixels(
    embeddings: Tensor, pixels: PixelClasses, anchors: Anchors, num_sets: int, num_samples: int
) -> tuple[Tensor, Tensor]:
    """Find the pixels most similar to each set of anchors.

    Candidates are the correct pixels of all classes but the set's true class. Similarity is the cosine to the mean of
    the unit-length drawn anchors, a pixel drawn several times counting so often.

    Parameters
    ----------
    embeddings : Tensor, shape (B, D, h, w), floating
        Constants here: the choice passes no gradient.
    pixels, anchors
        The batch.
    num_sets : int
        Number G of places for sets in an image.
    num_samples : int

    Returns
    -------
    pixel : Tensor, shape (B, G, min(num_samples, N)), int64
        The most similar first.
    available : Tensor, shape (B, G), int64
        How many of them are candidates.
    """
    embeddings = embeddings.detach()
    batch, dim = embeddings.shape[:2]
    unit = normalise(gather_pixels(embeddings, anchors.pixel), 1) * anchors.count.unsqueeze(1)  # (B, D, A)
    ordinal = anchors.runs.ordinal.clamp(max=num_sets - 1)
    centre = unit.new_zeros(batch, dim, num_sets).scatter_add_(2, ordinal.unsqueeze(1).expand_as(unit), unit)
    label = ordinal.new_full((batch, num_sets), -1).scatter_reduce_(
        1, ordinal, torch.where(anchors.count > 0, anchors.label, -1), "amax"
    )
    everything = embeddings.flatten(2).to(unit.dtype)
    length = torch.linalg.vector_norm(everything, dim=1, keepdim=True).clamp(min=1e-12)
    other = (~pixels.correct).unsqueeze(1)
    indices, available = [], []
    rows = max(1, BLOCK // (batch * everything.shape[2]))
    for some, own in zip(centre.split(rows, 2), label.split(rows, 1), strict=True):  # one block at common sizes
        similarity = torch.bmm(some.transpose(1, 2), everything) / length  # in multiples of the centre's length
        similarity.masked_fill_(other | (pixels.label.unsqueeze(1) == own.unsqueeze(2)), -torch.inf)
        best = similarity.topk(min(num_samples, similarity.shape[2]), dim=2)
        indices.append(best.indices)
        available.append(torch.isfinite(best.values).sum(2))
    return torch.cat(indices, 1), torch.cat(available, 1)
