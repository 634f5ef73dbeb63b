"""What all losses share: checked inputs, options from the one table, presets, statistics of the last call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pne.options import LOSSES, non_default_options, resolve_options

__all__ = ["STATISTICS", "ContrastLoss", "check_inputs"]

STATISTICS = (
    "anchors",
    "sets",
    "positive_similarity",
    "negative_similarity",
    "weight_mean",
    "weight_std",
)
"""Names of the statistics that each call leaves."""


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


class ContrastLoss(nn.Module):
    """Base of the losses; a subclass is named as in `pne.options.LOSSES` and computes `_contrast`.

    Attributes
    ----------
    options : dict
        Every option, fixed at construction.
    statistics : dict of str to Tensor
        Of the last call, detached float32 scalars on the device of the inputs, keys `STATISTICS`; empty before it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = resolve_options(self._loss_name(), options)
        self.statistics: dict[str, Tensor] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("options", {}):
            raise AttributeError(
                f"{name} of {type(self).__name__} is fixed at construction; build another loss with {name}={value!r}"
            )
        super().__setattr__(name, value)

    @classmethod
    def _loss_name(cls) -> str:
        return next(base.__name__ for base in cls.__mro__ if base.__name__ in LOSSES)

    @classmethod
    def from_preset(cls, preset: str, **overrides: Any) -> ContrastLoss:
        """Build the loss with the options of a preset.

        Parameters
        ----------
        preset : str
            A key of ``pne.options.PRESETS`` for this loss.
        **overrides
            Options that take precedence.

        Raises
        ------
        pne.options.OptionError
            Unknown preset or option, or a value that is not allowed.
        """
        return cls(**resolve_options(cls._loss_name(), overrides, preset))

    def extra_repr(self) -> str:
        """Show the options that differ from the defaults."""
        changed = non_default_options(self._loss_name(), self.options)
        return ", ".join(f"{name}={value!r}" for name, value in changed.items())

    def forward(
        self,
        embeddings: Tensor,
        logits: Tensor,
        labels: Tensor,
        ignore_index: int = 255,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        Parameters
        ----------
        embeddings : Tensor, shape (B, D, h, w), floating
            Output of the projection head, not normalised. Receives the gradient.
        logits : Tensor, shape (B, C, h, w), floating
            Scores of the main head. They decide which pixels are wrong, and the weights; no gradient.
        labels : Tensor, shape (B, H, W), integer
            At any size: brought to h x w by nearest neighbour, source coordinates rounded down.
        ignore_index : int
            Label to leave out. Labels outside 0 to C-1 are left out as well.
        generator : torch.Generator, optional
            Source of the random draws, on the device of the inputs; the global one if None.

        Returns
        -------
        Tensor, scalar, at least float32 (float64 for float64 embeddings)
            In nats, >= 0; exactly 0 and connected to the embeddings where there is nothing to contrast. Finite for
            finite inputs; a NaN or infinity in the embeddings or logits may show in it.

        Raises
        ------
        TypeError, ValueError
            Inputs whose types, shapes or devices do not go together.
        """
        check_inputs(embeddings, logits, labels, ignore_index, generator)
        with torch.autocast(embeddings.device.type, enabled=False):
            loss, statistics = self._contrast(embeddings, logits, labels, ignore_index, generator)
        statistics = {name: value.detach().float() for name, value in statistics.items()}
        if len(statistics) < len(STATISTICS):
            statistics = dict.fromkeys(STATISTICS, torch.zeros((), device=loss.device)) | statistics
        self.statistics = {name: statistics[name] for name in STATISTICS}
        return loss

    def _contrast(
        self,
        embeddings: Tensor,
        logits: Tensor,
        labels: Tensor,
        ignore_index: int,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        raise NotImplementedError(f"{type(self).__name__} does not say how it contrasts")
