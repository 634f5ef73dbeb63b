"""What every loss is given: checked shapes, labels at the size of the embeddings, correct and wrong pixels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["PixelClasses", "check_inputs", "classify_pixels", "resize_labels"]


@dataclass(frozen=True)
class PixelClasses:
    """True and predicted class of every pixel, in raster order; N = h * w.

    Attributes
    ----------
    label : Tensor, shape (B, N), int64
        True class; 0 where the pixel is ignored.
    predicted : Tensor, shape (B, N), int64
        Class of the largest logit.
    valid, correct, wrong : Tensor, shape (B, N), bool
        Not ignored; valid and predicted rightly; valid and mistaken.
    num_classes : int
    """

    label: Tensor
    predicted: Tensor
    valid: Tensor
    correct: Tensor
    wrong: Tensor
    num_classes: int


def check_inputs(
    embeddings: Tensor, logits: Tensor, labels: Tensor, ignore_index: int, generator: torch.Generator | None
) -> None:
    """Check shapes, types and devices; reads no value of a tensor.

    Raises
    ------
    TypeError
        An argument is not of its type, the embeddings or logits are not floating, or the labels are not integers.
    ValueError
        Shapes or devices do not go together, there are fewer than two classes, or a tensor is empty.
    """
    for name, tensor in (("embeddings", embeddings), ("logits", logits), ("labels", labels)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(tensor).__name__}")
    if not isinstance(ignore_index, int) or isinstance(ignore_index, bool):
        raise TypeError(f"ignore_index must be an integer, such as 255; got {ignore_index!r}")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator or None; got {generator!r}")
    if not embeddings.is_floating_point() or not logits.is_floating_point():
        raise TypeError(f"embeddings and logits must be floating; got {embeddings.dtype} and {logits.dtype}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers, int64 for choice; got {labels.dtype}")
    shapes = f"embeddings {tuple(embeddings.shape)}, logits {tuple(logits.shape)}, labels {tuple(labels.shape)}"
    if embeddings.dim() != 4 or logits.dim() != 4 or labels.dim() != 3:
        raise ValueError(f"expected embeddings (B, D, h, w), logits (B, C, h, w), labels (B, H, W); got {shapes}")
    if embeddings.shape[2:] != logits.shape[2:]:
        raise ValueError(f"embeddings and logits must agree in height and width; got {shapes}")
    if not embeddings.shape[0] == logits.shape[0] == labels.shape[0]:
        raise ValueError(f"embeddings, logits and labels must hold equally many images; got {shapes}")
    if logits.shape[1] < 2:
        raise ValueError(f"a contrast between classes needs logits of at least two classes; got {shapes}")
    if 0 in embeddings.shape or 0 in labels.shape:
        raise ValueError(f"embeddings, logits and labels must not be empty; got {shapes}")
    devices = {tensor.device for tensor in (embeddings, logits, labels)}
    if len(devices) > 1:
        raise ValueError(f"embeddings, logits and labels must be on one device; got {sorted(map(str, devices))}")
    if generator is not None and generator.device.type != embeddings.device.type:
        raise ValueError(f"the generator must be on {embeddings.device.type}; got one on {generator.device.type}")


def resize_labels(labels: Tensor, height: int, width: int) -> Tensor:
    """Bring labels to another size by nearest neighbour, source coordinates rounded down.

    Parameters
    ----------
    labels : Tensor, shape (B, H, W), integer
    height, width : int
        The size wanted; row i is row ``i * H // height`` of the labels, and columns likewise.

    Returns
    -------
    Tensor, shape (B, height, width), same dtype
    """
    for axis, size in ((1, height), (2, width)):
        given = labels.shape[axis]
        if given != size:
            index = torch.arange(size, device=labels.device) * given // size  # integers: exact at any size
            labels = labels.index_select(axis, index)
    return labels


def classify_pixels(logits: Tensor, labels: Tensor, ignore_index: int) -> PixelClasses:
    """Tell correct pixels from wrong ones.

    Parameters
    ----------
    logits : Tensor, shape (B, C, h, w), floating
    labels : Tensor, shape (B, H, W), integer
        At any size. Pixels labelled `ignore_index`, or with a number that is no class, belong to no group.
    ignore_index : int

    Returns
    -------
    PixelClasses
    """
    classes = logits.shape[1]
    label = resize_labels(labels, *logits.shape[2:]).flatten(1).long()
    predicted = logits.detach().flatten(2).max(1).indices  # the first of equal maxima; faster than argmax on the CPU
    valid = (label != ignore_index) & (label >= 0) & (label < classes)
    label = torch.where(valid, label, 0)
    hit = predicted == label
    return PixelClasses(label, predicted, valid, valid & hit, valid & ~hit, classes)
