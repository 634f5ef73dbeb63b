"""Cross entropy's own ways to hard pixels, where mmsegmentation lacks a part.

Rows name these classes by their path: this code counts in the code hash of the runs that use it, and of no others.
"""

from mmseg.models.losses.focal_loss import py_sigmoid_focal_loss
from torch import Tensor, nn
from torch.nn import functional


class FocalLoss(nn.Module):
    """Sigmoid focal loss (Lin et al. 2017), summed over the classes and averaged over all pixels.

    mmsegmentation's own class takes no labels on the CPU, and on CUDA it needs compiled operators.

    Parameters
    ----------
    gamma, alpha : float
        Exponent of the focus; share of the true class.
    loss_weight : float
    """

    loss_name = "loss_focal"

    def __init__(self, gamma: float = 2.0, alpha: float = 0.5, loss_weight: float = 1.0) -> None:
        super().__init__()
        self.gamma, self.alpha, self.loss_weight = gamma, alpha, loss_weight

    def forward(self, logits: Tensor, labels: Tensor, weight: Tensor | None = None, ignore_index: int = 255) -> Tensor:
        """Compute the loss, a scalar, of logits (B, C, H, W) and labels (B, H, W), with weights (B, H, W) of pixels."""
        valid, classes = labels != ignore_index, logits.shape[1]
        target = functional.one_hot(labels.masked_fill(~valid, 0), classes)
        kept = valid if weight is None else valid * weight
        settings = {"gamma": self.gamma, "alpha": self.alpha, "valid_mask": kept.view(-1, 1)}
        loss = py_sigmoid_focal_loss(logits.movedim(1, -1).flatten(0, 2), target.flatten(0, 2), **settings)
        return self.loss_weight * classes * loss


class KeptShare(nn.Module):
    """Among the losses of a head, logs the share of labelled pixels that its sampler keeps; no term of the sum."""

    loss_name = "kept_share"

    def forward(self, logits: Tensor, labels: Tensor, weight: Tensor, ignore_index: int = 255) -> Tensor:
        """Return the share, a scalar without gradient; labels and the sampler's weights are (B, H, W)."""
        return weight.sum() / (labels != ignore_index).sum().clamp(min=1)
