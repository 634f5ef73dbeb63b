"""Cross-image pixel contrast (CIPC), the baseline, and its optional memory of embeddings of earlier images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pne.losses.base import ContrastLoss, check_inputs
from pne.losses.functional import contrast_with_batch, contrast_with_memory
from pne.losses.pixels import PixelClasses, classify_pixels, count_members, draw_samples, shuffle, sort_groups
from pne.losses.similarity import gather_pixels, normalise

__all__ = ["PixelContrastLoss", "PixelDraw", "PixelMemory"]


@dataclass(frozen=True)
class PixelDraw:
    """Pixels drawn from a batch, M places.

    Attributes
    ----------
    image, pixel, label : Tensor, shape (M,), int64
        Image in the batch, raster index, true class.
    present : Tensor, shape (M,), bool
        False marks padding.
    pairs : Tensor, scalar, int64
        Number of (image, class) pairs drawn from.
    """

    image: Tensor
    pixel: Tensor
    label: Tensor
    present: Tensor
    pairs: Tensor


class PixelContrastLoss(ContrastLoss):
    """Supervised contrast of pixels across the images of a batch, or with a memory (Wang et al. 2021, "CIPC").

    From each class in the labels of each image equally many pixels are drawn, part of them errors; see
    `pne.losses.functional.pixel_contrast` for what is computed on them, and for what departs from the original code.

    Parameters
    ----------
    temperature, base_temperature : float
    max_anchors : int
        Largest number of anchors of a call, M. It is shared out evenly among the (image, class) pairs, at least one
        pixel for each; should there be more pairs than anchors, the last ones get none.
    anchors_per_class : int
        Largest number of anchors of one class in one image.
    error_share : float
        Share of misclassified pixels among them, rounded down; where errors or correct pixels run out the others fill
        up.
    memory_size : int or None
        Length of each queue of the memory. With a memory, its vectors are the only candidates; the loss is 0 until
        it holds some. In training mode each call stores the batch after contrasting it.
    pixels_per_image : int
        Pixels per class and image for the pixel queue.
    num_classes : int, optional
        C; needed with a memory.
    channels : int
        D of the embeddings in the memory.

    Notes
    -----
    The statistic `anchors` counts those with a positive, `sets` the (image, class) pairs; there are no weights.
    The gradient is computed with the loss, as the memory changes before the backward pass: no second derivatives.

    Raises
    ------
    pne.options.OptionError
        Unknown option, or a value that is not allowed.
    ValueError
        A memory without `num_classes`, or sizes that do not go together with the memory's.
    """

    def __init__(self, *, num_classes: int | None = None, channels: int = 256, **options: Any) -> None:
        super().__init__(**options)
        self.memory: PixelMemory | None = None
        if self.options["memory_size"] is not None:
            if num_classes is None:
                raise ValueError(
                    "PixelContrastLoss: a memory needs num_classes, the number of channels of the logits; "
                    "give num_classes or set memory_size to None"
                )
            self.memory = PixelMemory(
                num_classes, channels, self.options["memory_size"], self.options["pixels_per_image"]
            )

    def draw(
        self,
        embeddings: Tensor,
        logits: Tensor,
        labels: Tensor,
        ignore_index: int = 255,
        generator: torch.Generator | None = None,
    ) -> PixelDraw:
        """Draw the anchors that a call with the same arguments, and the generator in the same state, contrasts."""
        check_inputs(embeddings, logits, labels, ignore_index, generator)
        return self._draw(classify_pixels(logits, labels, ignore_index), generator)

    @torch.no_grad()
    def _draw(self, pixels: PixelClasses, generator: torch.Generator | None) -> PixelDraw:
        images, places = pixels.label.shape
        classes = pixels.num_classes + 1  # the last one is that of ignored pixels
        group = torch.add(pixels.correct, pixels.label, alpha=2)
        count = count_members(group, 2 * classes)
        pixel, _ = sort_groups(group, 2 * classes, shuffle("random", group, generator))

        wrong, correct = count.view(images, classes, 2).unbind(2)
        labelled = wrong + correct > 0
        labelled[:, -1] = False
        pairs = labelled.sum()
        share = self.options["max_anchors"] // pairs.clamp(min=1)
        share.clamp_(1, self.options["anchors_per_class"])
        errors = (share * self.options["error_share"]).floor_().long()
        errors = torch.minimum(wrong, torch.maximum(errors, share - correct))
        others = torch.minimum(correct, share - errors)
        drawn = torch.stack([errors, others], 2) * labelled.unsqueeze(2)
        size = min(self.options["max_anchors"], images * places)
        samples = draw_samples(count.view(1, -1), drawn.view(1, -1), pixel.view(1, -1), size)
        pair = samples.label[0] // 2
        return PixelDraw(
            image=pair // classes,
            pixel=samples.pixel[0],
            label=(pair % classes).clamp_(max=pixels.num_classes - 1),
            present=samples.present[0],
            pairs=pairs,
        )

    def _contrast(
        self,
        embeddings: Tensor,
        logits: Tensor,
        labels: Tensor,
        ignore_index: int,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self._check_memory(embeddings, logits)
        pixels = classify_pixels(logits, labels, ignore_index)
        draw = self._draw(pixels, generator)
        dtype = torch.promote_types(embeddings.dtype, torch.float32)
        vectors = normalise(embeddings.flatten(2)[draw.image, :, draw.pixel].to(dtype), 1)  # (M, D)
        loss, statistics = self._evaluate(vectors, draw)
        statistics["sets"] = draw.pairs
        if self.memory is not None and self.training:
            self.memory.update(embeddings, pixels, generator)
        return loss, statistics

    def _evaluate(self, vectors: Tensor, draw: PixelDraw) -> tuple[Tensor, dict[str, Tensor]]:
        if self.memory is None:
            parts = contrast_with_batch(vectors, draw.label, draw.present, self.options["temperature"])
            return self._average(*parts)
        with torch.set_grad_enabled(vectors.requires_grad and torch.is_grad_enabled()):
            leaf = vectors.detach().requires_grad_(torch.is_grad_enabled())
            parts = contrast_with_memory(
                leaf,
                draw.label,
                draw.present,
                self.memory.vectors.to(vectors.dtype),
                self.memory.filled(),
                self.options["temperature"],
            )
            loss, statistics = self._average(*parts)
            if not leaf.requires_grad:
                return loss, statistics
            (gradient,) = torch.autograd.grad(loss, leaf)
        return _WithGradient.apply(vectors, loss.detach(), gradient), statistics

    def _average(
        self, term: Tensor, has_positive: Tensor, positive: Tensor, negative: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        anchors = has_positive.sum()
        number = anchors.clamp(min=1)
        scale = self.options["temperature"] / self.options["base_temperature"]
        similarity = (torch.stack([positive, negative]) * has_positive).sum(1) / number
        return (term * has_positive).sum() / number * scale, {
            "anchors": anchors,
            "positive_similarity": similarity[0],
            "negative_similarity": similarity[1],
        }

    def _check_memory(self, embeddings: Tensor, logits: Tensor) -> None:
        if self.memory is None:
            return
        classes, _, channels = self.memory.vectors.shape
        if (logits.shape[1], embeddings.shape[1]) != (classes, channels):
            raise ValueError(
                f"PixelContrastLoss: the memory was made for num_classes={classes}, channels={channels}; got "
                f"{logits.shape[1]} classes and embeddings of {embeddings.shape[1]} channels"
            )


class _WithGradient(torch.autograd.Function):
    """A scalar whose gradient with respect to its input is already known."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return upstream * gradient, None, None


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
        return (row < self._received().unsqueeze(2)).flatten(1)

    def _received(self) -> Tensor:
        return torch.stack([self.segment_count, self.pixel_count], 1)

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
        classes, queues = pixels.num_classes, 2 * pixels.num_classes
        member = pixels.label.unsqueeze(1) == torch.arange(classes, device=pixels.label.device).unsqueeze(1)
        count = member.sum(2)  # (B, C)
        everything = embeddings.detach().flatten(2).to(self.vectors.dtype)
        length = torch.linalg.vector_norm(everything, dim=1, keepdim=True).clamp_(min=1e-12)
        segment = torch.bmm(member / length, everything.transpose(1, 2))  # (B, C, D)

        pixel, _ = sort_groups(pixels.label, classes + 1, shuffle("random", pixels.label, generator))
        size = min(classes * self.pixels_per_image, pixel.shape[1])
        drawn = count.clamp(max=self.pixels_per_image)
        samples = draw_samples(count, drawn, pixel, size)
        chosen = gather_pixels(everything.unsqueeze(3), samples.pixel).transpose(1, 2)  # (B, S, D)
        vectors = normalise(torch.cat([segment, chosen], 1), 2)

        # queues in the order of the rows: the segments of class 0, its pixels, the segments of class 1, ...
        added = torch.stack([count.clamp(max=1), drawn], 2).flatten(1)  # (B, 2 * C), image after image
        earlier = self._received().flatten()
        received = added.cumsum(0) + earlier
        queue = torch.cat(
            [torch.arange(0, queues, 2, device=count.device).expand(len(count), -1), samples.label * 2 + 1], 1
        )
        within = torch.arange(size, device=count.device) - samples.offset.gather(1, samples.label)
        number = (received - added).gather(1, queue) + torch.nn.functional.pad(within, (classes, 0))
        present = torch.cat([count > 0, samples.present], 1)
        present &= number >= (received[-1] - self.size)[queue]  # of too many, the last
        self._write(vectors, queue * self.size + number % self.size, present)
        self.segment_count.copy_(received[-1, 0::2])
        self.pixel_count.copy_(received[-1, 1::2])

    def _write(self, vectors: Tensor, row: Tensor, present: Tensor) -> None:
        """Put vectors (B, E, D) in the place of rows (B, E), which differ where they are present.

        To subtract what a row holds leaves exactly 0; what is absent adds 0, wherever it points.
        """
        rows, row, absent = self.vectors.view(-1, self.vectors.shape[2]), row.flatten(), ~present.view(-1, 1)
        rows.index_add_(0, row, rows[row].masked_fill_(absent, 0), alpha=-1)
        rows.index_add_(0, row, vectors.flatten(0, 1).masked_fill(absent, 0))
