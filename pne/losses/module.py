"""What all losses share: options from the one table, presets, the form of a call, statistics of the last call."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from pne.losses.inputs import check_inputs
from pne.options import LOSSES, non_default_options, resolve_options

__all__ = ["STATISTICS", "ContrastLoss"]

STATISTICS = (
    "anchors",
    "sets",
    "positive_similarity",
    "negative_similarity",
    "weight_mean",
    "weight_std",
)
"""Names of the statistics that each call leaves."""


class ContrastLoss(nn.Module):
    """Base of the losses; a subclass is named as in `pne.options.LOSSES` and computes `_contrast`.

    Attributes
    ----------
    options : dict
        Every option; each can be read as an attribute, too. Fixed at construction.
    statistics : dict of str to Tensor
        Of the last call, detached float32 scalars on the device of the inputs, keys `STATISTICS`; empty before it.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__name__ in LOSSES:  # the table's options, then what the constructor adds
            keyword = inspect.Parameter.KEYWORD_ONLY
            options = [inspect.Parameter(o.name, keyword, default=o.default) for o in LOSSES[cls.__name__].values()]
            others = [p for p in inspect.signature(cls.__init__).parameters.values() if p.kind is keyword]
            cls.__signature__ = inspect.Signature(options + others)

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = resolve_options(self._loss_name(), options)
        self.statistics: dict[str, Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.get("options", {})
        return options[name] if name in options else super().__getattr__(name)

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
            Options that take precedence, and other arguments of the constructor.

        Raises
        ------
        pne.options.OptionError
            Unknown preset or option, or a value that is not allowed.
        """
        known = inspect.signature(cls).parameters
        others = {
            name: overrides.pop(name)
            for name in list(overrides)
            if name in known and name not in LOSSES[cls._loss_name()]
        }
        return cls(**resolve_options(cls._loss_name(), overrides, preset), **others)

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
        zero = torch.zeros((), device=loss.device)
        self.statistics = {
            name: statistics[name].detach().float() if name in statistics else zero for name in STATISTICS
        }
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
