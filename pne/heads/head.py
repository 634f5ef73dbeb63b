"""Any decode head of mmsegmentation with a contrast branch that exists in training alone."""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from mmengine.structures import BaseDataElement
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.registry import MODELS
from torch import Tensor

from pne.errors import UserError
from pne.heads.branch import BRANCH_OPTIONS, ContrastBranch
from pne.heads.config import check_keys, classifying_heads, find_base


class Tap(NamedTuple):
    """One call of ``cls_seg``: its input, its output and whether autograd recorded it."""

    features: Tensor
    logits: Tensor
    recorded: bool


@MODELS.register_module()
class ContrastHead:
    """Add a contrast branch to a decode head.

    ``ContrastHead(base="ASPPHead", contrast=..., **arguments)`` makes an instance of a subclass of the base head, which
    takes the other arguments. While ``loss`` runs, the input (before dropout) and the output of the head's ``cls_seg``
    are noted, and ``contrast`` turns them into one more loss; ``forward`` and ``predict`` are those of the base head.
    The parameters of the base head keep their names, and those of the branch begin with ``contrast.``.

    Parameters
    ----------
    base : str or type
        Name of the head in mmseg's registry, or its class.
    contrast : dict
        Options of ``ContrastBranch`` (which ``type`` may leave out): ``loss``, ``weight``, ``start``, ``projection``,
        ``seed``.
    **arguments
        Arguments of the base head.

    Raises
    ------
    UserError
        If the base is unknown, is no decode head, has no pixel classifier or a binary one of a single channel, or if
        an option of the branch or its loss is wrong.
    """

    contrast: torch.nn.Module
    _taps: list[Tap] | None = None

    def __new__(cls, *, base: str | type | None = None, **arguments: Any) -> "ContrastHead":
        """Make an instance of the subclass that belongs to the base head."""
        return object.__new__(contrast_class(find_base(base)))

    def __init__(self, *, contrast: Mapping[str, Any] | None = None, base: str | type | None = None, **arguments: Any):
        super().__init__(**arguments)
        name = self.base_class.__name__
        if self.out_channels == 1:
            raise UserError(
                f"ContrastHead: {name} is binary with a single output channel, and the contrast needs one score per "
                "class; set num_classes=2, out_channels=2"
            )
        if not hasattr(self, "conv_seg"):
            raise UserError(f"ContrastHead: {name} has no pixel classifier conv_seg; {_allowed()}")
        self.contrast = build_branch(
            contrast,
            in_channels=self.conv_seg.in_channels,
            num_classes=self.out_channels,
            default_norm_cfg=self.norm_cfg,
        )

    @property
    def base_class(self) -> type[BaseDecodeHead]:
        """The decode head without the branch."""
        return type(self).__bases__[1]

    def cls_seg(self, feat: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Classify pixels as the base head does; note the features and logits while ``loss`` runs."""
        logits = super().cls_seg(feat, *args, **kwargs)
        if self._taps is not None:
            self._taps.append(Tap(feat, logits, torch.is_grad_enabled()))
        return logits

    def loss(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Compute the losses of the base head and those of the branch.

        Takes what the base head's ``loss`` takes, the data samples among it.

        Raises
        ------
        UserError
            If the base head did not call ``cls_seg`` once on one feature map.
        """
        self._taps = taps = []
        try:
            losses = super().loss(*args, **kwargs)
        finally:
            self._taps = None
        features, logits, _ = self._choose(taps)
        samples = self._data_samples(*args, *kwargs.values())
        labels = BaseDecodeHead._stack_batch_gt(self, samples).squeeze(1)  # a head's own may stack edges, too
        ignore_index = 255 if self.ignore_index is None else self.ignore_index
        losses.update(self.contrast(features, logits, labels, ignore_index=ignore_index))
        return losses

    def init_weights(self) -> None:
        """Initialise the base head; the branch keeps the weights of its own random stream."""
        contrast = self._modules.pop("contrast", None)  # some heads initialise all of self.modules()
        try:
            super().init_weights()
        finally:
            if contrast is not None:
                self._modules["contrast"] = contrast

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        """Pickle and copy by base head and state: the generated class cannot be imported by name."""
        return _restore, (self.base_class,), self.__dict__

    def _choose(self, taps: list[Tap]) -> Tap:
        name = self.base_class.__name__
        if not taps:
            raise UserError(f"ContrastHead: {name} never calls cls_seg while its loss is computed; {_allowed()}")
        recorded = [tap for tap in taps if tap.recorded] if torch.is_grad_enabled() else taps
        if not recorded:
            raise UserError(
                f"ContrastHead: {name} calls cls_seg without gradient, as re-entrant gradient checkpointing does; use "
                "torch.utils.checkpoint.checkpoint(..., use_reentrant=False)"
            )
        if len(recorded) > 1:
            shapes = ", ".join(str(tuple(tap.features.shape)) for tap in recorded)
            raise UserError(
                f"ContrastHead: {name} calls cls_seg {len(recorded)} times in one loss, on features of shapes "
                f"{shapes}; it must call it once, so that it is clear which features to contrast"
            )
        features, logits, _ = recorded[0]
        if features.ndim != 4 or logits.ndim != 4 or features.shape[2:] != logits.shape[2:]:
            raise UserError(
                f"ContrastHead: {name} calls cls_seg on features of shape {tuple(features.shape)} for logits of shape "
                f"{tuple(logits.shape)}; expected maps (B, channels, h, w) and (B, classes, h, w); {_allowed()}"
            )
        return recorded[0]

    def _data_samples(self, *arguments: Any) -> list[BaseDataElement]:
        for argument in arguments:
            if isinstance(argument, list | tuple) and argument and isinstance(argument[0], BaseDataElement):
                return list(argument)
        raise UserError(f"ContrastHead: the loss of {self.base_class.__name__} was called without data samples")


def build_branch(contrast: object, **given: Any) -> torch.nn.Module:
    """Build the branch from its config; ``given`` are the arguments that the head knows.

    Raises
    ------
    UserError
        If the config is no dict, its type is unknown or an option is wrong.
    """
    if not isinstance(contrast, Mapping):
        raise UserError(
            f"ContrastHead: contrast must be a dict with keys of {', '.join(BRANCH_OPTIONS)}, got {contrast!r}"
        )
    config = {"type": "ContrastBranch", **contrast}
    if isinstance(config["type"], str):
        found = MODELS.get(config["type"])
        if found is None:
            raise UserError(f"contrast.type: no branch {config['type']!r} is registered; allowed: ContrastBranch")
        config["type"] = found
    if config["type"] is ContrastBranch:
        check_keys("contrast", contrast, ["type", *BRANCH_OPTIONS])
        if "loss" not in contrast:
            raise UserError("contrast.loss is missing; for example contrast=dict(loss=dict(type='PNELoss'))")
    return MODELS.build({**config, **given})


@cache
def contrast_class(base: type[BaseDecodeHead]) -> type[ContrastHead]:
    """Make the subclass of a decode head that carries a contrast branch; one per head."""
    return type(base)(f"Contrast{base.__name__}", (ContrastHead, base), {"__module__": __name__})


def _restore(base: type[BaseDecodeHead]) -> ContrastHead:
    return object.__new__(contrast_class(base))


def _allowed() -> str:
    return f"allowed: heads that classify one feature map with cls_seg, such as {', '.join(classifying_heads())}"
