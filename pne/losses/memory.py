"""Memory of embeddings of earlier images: a segment queue and a pixel queue for each class."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pne.losses.inputs import PixelClasses
from pne.losses.ordering import find_runs, order_pixels, sort_groups
from pne.losses.samples import draw_samples
from pne.losses.similarity import gather_pixels, normalise

__all__ = ["PixelMemory"]


class PixelMemory(nn.Module):
    """Two first-in-first-out queues per class, as buffers of one process.

    Each image adds, for each class in its labels, one segment (the mean of the unit-length embeddings of all pixels
    labelled so, brought to unit length) and up to `pixels_per_image` random pixels labelled so.

    Parameters
    ----------
    num_classes, channels : int
        C and D.
    size : int
        Length R of each queue.
    pixels_per_image : int

    Attributes
    ----------
    vectors : Tensor, shape (C, 2 * R, D), float32
        Segments in the first R rows of a class, pixels in the others.
    segment_count, pixel_count : Tensor, shape (C,), int64
        How many vectors a queue has received in all; the oldest of the last R is overwritten next.
    """

    vectors: Tensor
    segment_count: Tensor
    pixel_count: Tensor

    def __init__(self, num_classes: int, channels: int, size: int, pixels_per_image: int) -> None:
        super().__init__()
        self.size, self.pixels_per_image = size, pixels_per_image
        self.register_buffer("vectors", torch.zeros(num_classes, 2 * size, channels))
        self.register_buffer("segment_count", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("pixel_count", torch.zeros(num_classes, dtype=torch.int64))

    def filled(self) -> Tensor:
        """Tell which rows of `vectors` hold one, (C, 2 * R), bool."""
        row = torch.arange(self.size, device=self.vectors.device)
        return torch.cat([row < count.unsqueeze(1) for count in (self.segment_count, self.pixel_count)], 1)

    @torch.no_grad()
    def update(self, embeddings: Tensor, pixels: PixelClasses, generator: torch.Generator | None) -> None:
        """Store segments and pixels of a batch.

        Parameters
        ----------
        embeddings : Tensor, shape (B, D, h, w), floating
            Not normalised.
        pixels : PixelClasses
        generator : torch.Generator or None
            Chooses the pixels.
        """
        classes = pixels.num_classes
        member = pixels.label.unsqueeze(1) == torch.arange(classes, device=pixels.label.device).unsqueeze(1)
        member &= pixels.valid.unsqueeze(1)  # (B, C, N)
        count = member.sum(2)

        everything = embeddings.detach().flatten(2).to(self.vectors.dtype)
        length = torch.linalg.vector_norm(everything, dim=1, keepdim=True).clamp(min=1e-12)
        segment = normalise(torch.bmm(member / length, everything.transpose(1, 2)), 2)  # (B, C, D)
        label = torch.arange(classes, device=count.device).expand_as(count)
        self._push(segment, label, count > 0, 0, self.segment_count)

        group = torch.where(pixels.valid, pixels.label, classes)
        _, order, pixel = sort_groups(group, order_pixels("random", group, generator))
        size = min(classes * self.pixels_per_image, group.shape[1])
        samples = draw_samples(count, count.clamp(max=self.pixels_per_image), order, pixel, size)
        vectors = normalise(gather_pixels(embeddings.detach(), samples.pixel), 1).transpose(1, 2)  # (B, S, D)
        self._push(vectors, samples.label, samples.present, self.size, self.pixel_count)

    def _push(self, vectors: Tensor, label: Tensor, present: Tensor, offset: int, count: Tensor) -> None:
        """Append vectors (B, E, D) to the queues that begin at row `offset`, image after image."""
        label, present = label.flatten(), present.flatten()
        label, entry = torch.where(present, label, len(count)).sort(stable=True)
        runs = find_runs(label)
        real = label < len(count)
        present = real & (runs.rank >= runs.length - self.size)  # of too many, the last
        label = label.clamp(max=len(count) - 1)
        target = 2 * self.size * label + offset + (count[label] + runs.rank) % self.size
        values = vectors.flatten(0, 1)[entry].to(self.vectors.dtype)

        # what is not to be stored repeats a write that is, or, where there is none, writes what already stands there
        stand_in = present.long().argmax().view(1)
        spare = target[stand_in]
        rows = self.vectors.view(-1, self.vectors.shape[2])
        spare_value = torch.where(present.any(), values[stand_in], rows[spare])
        target = torch.where(present, target, spare)
        rows.index_copy_(0, target, torch.where(present.unsqueeze(1), values, spare_value))
        count.scatter_add_(0, label, real.long())
