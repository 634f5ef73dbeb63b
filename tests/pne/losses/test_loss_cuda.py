"""On a CUDA device: the values of the CPU, and no synchronisation."""

from __future__ import annotations

import pytest
import torch
from loss_scenes import make_batch

from pne.losses import AsymmetricContrastLoss, PixelContrastLoss, PNELoss

pytestmark = pytest.mark.gpu

DETERMINED = {
    "paper": lambda: PNELoss(num_samples=99),
    "authors": lambda: PNELoss.from_preset("authors"),
    "hard": lambda: PNELoss(num_samples=99, negatives="hard", anchor_sets="mixed"),
    "asymmetric": lambda: AsymmetricContrastLoss(num_samples=99),
    "pixel": lambda: PixelContrastLoss(),
}


def run(loss, batch, device):
    embeddings, logits, labels = (x.to(device) for x in batch)
    embeddings.requires_grad_()
    value = loss(embeddings, logits, labels)
    (gradient,) = torch.autograd.grad(value, embeddings)
    return value, gradient


@pytest.mark.parametrize("name", DETERMINED)
def test_equals_the_cpu(name):
    batch = make_batch()
    for on_cpu, on_cuda in zip(*(run(DETERMINED[name](), batch, device) for device in ("cpu", "cuda")), strict=True):
        torch.testing.assert_close(on_cuda.cpu(), on_cpu, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["paper", "asymmetric", "pixel"])
def test_never_waits_for_the_device(name):
    loss, batch = DETERMINED[name](), tuple(x.cuda() for x in make_batch(dtype=torch.bfloat16))
    run(loss, batch, "cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        embeddings = batch[0].requires_grad_()
        torch.autograd.grad(loss(embeddings, *batch[1:], generator=torch.Generator("cuda").manual_seed(0)), embeddings)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_generator_of_another_device_is_an_error():
    batch = tuple(x.cuda() for x in make_batch())
    with pytest.raises(ValueError, match="the generator must be on cuda; got one on cpu"):
        PNELoss()(*batch, generator=torch.Generator())
