"""The focal loss as its formula says, and the share of pixels that a sampler keeps."""

import pytest
import torch

from pne.heads.hard_pixels import FocalLoss, KeptShare


@pytest.mark.parametrize("weighted", [False, True])
def test_focal_loss_is_that_of_its_formula(weighted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 4, 5, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(4, (2, 5, 6), generator=generator)
    labels[:, 0] = 255
    weight = torch.rand(2, 5, 6, generator=generator, dtype=torch.float64) if weighted else None
    total = 0.0
    for image, row, column in (labels != 255).nonzero().tolist():
        for c in range(4):
            p = torch.sigmoid(logits[image, c, row, column])
            right = labels[image, row, column] == c
            p, share = (p, 0.3) if right else (1 - p, 0.7)
            factor = 1.0 if weight is None else weight[image, row, column]
            total = total - factor * share * (1 - p) ** 1.5 * p.log()
    found = FocalLoss(gamma=1.5, alpha=0.3, loss_weight=2.0)(logits, labels, weight=weight)
    torch.testing.assert_close(found, 2 * total / labels.numel())
    gradients = [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (found, 2 * total)]
    torch.testing.assert_close(gradients[0], gradients[1] / labels.numel())


def test_kept_share_is_of_labelled_pixels() -> None:
    labels = torch.tensor([[[0, 1, 255, 2]]])
    assert KeptShare()(torch.zeros(1, 3, 1, 4), labels, weight=torch.tensor([[[1.0, 0.0, 0.0, 0.0]]])) == 1 / 3
    assert KeptShare()(torch.zeros(1, 3, 1, 4), labels * 0 + 255, weight=torch.zeros(1, 1, 4)) == 0
