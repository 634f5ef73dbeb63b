"""The training-only branch of a decode head: projection, loss, weight and the randomness of the loss."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn as nn
from mmengine import dist
from mmseg.registry import MODELS
from torch import Tensor

from pne.heads.checks import check_integer, check_keys, check_weight, option_names
from pne.heads.losses import build_loss
from pne.heads.projection import Projection
from pne.heads.randomness import call_generator, global_randomness_untouched


@MODELS.register_module()
class ContrastBranch(nn.Module):
    """Project the features of a decode head and contrast them.

    The random draws of the loss come from a generator of its own, made anew for each call from ``seed``, the rank of
    the process and the number of the call, so the branch neither reads nor moves torch's global generators. The call
    number is the buffer ``calls``: a run restored from a checkpoint draws what the uninterrupted run would have drawn.

    Parameters
    ----------
    in_channels : int
        Channels of the tapped features. ContrastHead gives it, and the next two.
    num_classes : int
        C, channels of the logits.
    default_norm_cfg : dict, optional
        Norm of the projection where ``projection`` names none; batch norm where both are None.
    loss : dict or nn.Module
        Config of the loss, with ``type`` and perhaps ``preset``; see ``pne.losses``.
    weight : float
        Factor of the loss, finite and >= 0.
    start : int
        Number of the first training call whose loss counts. Before it the term is exactly 0 while the loss is computed
        all the same: it stays in the graph, its statistics are logged and a memory fills.
    projection : dict, optional
        ``channels`` (256), ``hidden`` (that of the features) and ``norm_cfg`` of the projection.
    seed : int
        Seed of the projection's initial weights and of the draws of the loss.

    Raises
    ------
    UserError
        If an option of the branch, the projection or the loss is unknown or out of range.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        loss: Mapping[str, Any] | nn.Module,
        default_norm_cfg: dict | None = None,
        weight: float = 1.3,
        start: int = 0,
        projection: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_weight("contrast.weight", weight)
        check_integer("contrast.start", start, minimum=0)
        check_integer("contrast.seed", seed, minimum=0)
        projection = {} if projection is None else projection
        check_keys("contrast.projection", projection, ("channels", "hidden", "norm_cfg"))
        shape = {"channels": 256, "hidden": None, "norm_cfg": None, **projection}
        shape["hidden"] = in_channels if shape["hidden"] is None else shape["hidden"]
        shape["norm_cfg"] = default_norm_cfg if shape["norm_cfg"] is None else shape["norm_cfg"]
        for name in ("channels", "hidden"):
            check_integer(f"contrast.projection.{name}", shape[name], minimum=1)
        self.weight, self.start, self.seed = weight, start, seed
        self.projection = Projection(in_channels, seed=seed, **shape)
        with global_randomness_untouched():
            self.loss = build_loss(loss, num_classes=num_classes, channels=shape["channels"])
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self._calls = 0  # the buffer's value on the host: reading the buffer would synchronise a CUDA device

    def forward(self, features: Tensor, logits: Tensor, labels: Tensor, ignore_index: int = 255) -> dict[str, Tensor]:
        """Compute the weighted loss and its statistics.

        Parameters
        ----------
        features : Tensor, shape (B, in_channels, h, w), floating
            Input of the head's pixel classifier; receives gradient.
        logits : Tensor, shape (B, C, h, w), floating
            Output of that classifier.
        labels : Tensor, shape (B, H, W), int64
            Labels at any size.
        ignore_index : int
            Label that is left out.

        Returns
        -------
        dict of str to Tensor, each of shape ()
            ``loss_contrast``, connected to every parameter of the projection, and the detached statistics of the
            loss as ``contrast_*``; always the same keys.
        """
        embeddings = self.projection(features)
        generator = call_generator(self.seed, dist.get_rank(), self._calls, embeddings.device)
        loss = self.loss(embeddings, logits, labels, ignore_index=ignore_index, generator=generator)
        weight = self.weight if self._calls >= self.start else 0.0
        if self.training:
            self._calls += 1
            self.calls += 1
        statistics = getattr(self.loss, "statistics", {})
        return {"loss_contrast": weight * loss, **{f"contrast_{name}": value for name, value in statistics.items()}}

    def apply(self, fn: Callable[[nn.Module], None]) -> "ContrastBranch":
        """Apply ``fn`` to all modules; an initialiser draws here without moving global generators."""
        with global_randomness_untouched({parameter.device for parameter in self.parameters()}):
            return super().apply(fn)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        if f"{prefix}calls" in state_dict:
            self._calls = int(state_dict[f"{prefix}calls"])

    def extra_repr(self) -> str:
        """Show the options of the branch itself."""
        return f"weight={self.weight}, start={self.start}, seed={self.seed}"


BRANCH_OPTIONS = option_names(ContrastBranch, but=("in_channels", "num_classes", "default_norm_cfg"))
