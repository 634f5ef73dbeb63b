"""Small random batches with coherent labels, mistaken pixels and ignored ones; settings of the losses for them."""

import pytest
import torch
from torch import Tensor

from pne.losses import AsymmetricContrastLoss, PixelContrastLoss, PNELoss

ALL = {"num_samples": 99, "max_anchors": 99}  # of images with at most 99 pixels: nothing is left to chance
SETTINGS = {
    "paper": lambda: PNELoss(**ALL),
    "mixed": lambda: PNELoss(**ALL, anchor_sets="mixed", positive_weight="logit"),
    "hard": lambda: PNELoss(**ALL, anchor_sets="mixed", negatives="hard"),
    "random": lambda: PNELoss(**ALL, negatives="random", empty_negatives="anchors"),
    "authors": lambda: PNELoss.from_preset("authors", sampling="random"),
    "asymmetric": lambda: AsymmetricContrastLoss(**ALL),
    "pixel": lambda: PixelContrastLoss(),
}
every_setting = pytest.mark.parametrize("build", SETTINGS.values(), ids=SETTINGS)
every_loss = pytest.mark.parametrize("loss_class", [PNELoss, AsymmetricContrastLoss, PixelContrastLoss])

Batch = tuple[Tensor, Tensor, Tensor]


def make_batch(
    images=2, dim=6, classes=4, height=9, width=11, error_rate=0.3, ignored=0.1, scale=1, seed=0, dtype=torch.float64
) -> Batch:
    """Draw embeddings (B, D, h, w), logits (B, C, h, w) and labels (B, scale * h, scale * w).

    Labels come in blocks of three columns; a share `error_rate` of pixels is predicted as a random class.
    """
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(classes, (images, height, width // 3 + 1), generator=generator)
    label = blocks.repeat_interleave(3, 2)[:, :, :width]
    mistaken = torch.rand(label.shape, generator=generator) < error_rate
    other = torch.randint(classes, label.shape, generator=generator)
    predicted = torch.where(mistaken, other, label)
    logits = torch.randn(images, classes, height, width, generator=generator, dtype=torch.float64)
    logits.scatter_add_(1, predicted.unsqueeze(1), torch.full_like(logits[:, :1], 6.0))
    centres = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    embeddings = centres[label].permute(0, 3, 1, 2)
    embeddings = embeddings + torch.randn(embeddings.shape, generator=generator, dtype=torch.float64)
    label = torch.where(torch.rand(label.shape, generator=generator) < ignored, 255, label)
    label = label.repeat_interleave(scale, 1).repeat_interleave(scale, 2)
    return embeddings.to(dtype).contiguous(), logits.to(dtype), label


def evaluate(loss: torch.nn.Module, batch: Batch, seed: int = 0, **kwargs: int) -> tuple[Tensor, Tensor]:
    """Return value and gradient of a loss, drawn with a generator of this seed."""
    embeddings = batch[0].detach().clone().requires_grad_()
    value = loss(embeddings, *batch[1:], generator=torch.Generator(embeddings.device).manual_seed(seed), **kwargs)
    (gradient,) = torch.autograd.grad(value, embeddings)
    return value.detach(), gradient
