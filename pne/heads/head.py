"""Any decode head of mmsegmentation with a contrast branch that exists in training alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass
class Call:
    """What is known while ``loss`` runs: labels, calls of ``cls_seg``, input of the head, losses of the branch."""

    samples: list[BaseDataElement]
    taps: list[Tap] = field(default_factory=list)
    inputs: Tensor | list[Tensor] | None = None
    losses: dict[str, Tensor] | None = None


@MODELS.register_module()
class ContrastHead:
    """Add a contrast branch to a decode head.

    ``ContrastHead(base="ASPPHead", contrast=..., **arguments)`` makes an instance of a subclass of the base head, which
    takes the other arguments. While ``loss`` runs, the input (before dropout) and the output of the head's ``cls_seg``
    are noted, and ``contrast`` turns them into one more loss; ``forward`` and ``predict`` are those of the base head.
    With ``projection=dict(taps="backbone")`` the input of the head itself is contrasted. The parameters of the base
    head keep their names, and those of the branch begin with ``contrast.``.

    The branch is computed when the head passes through ``loss_by_feat``, before its own losses, which may wait for a
    CUDA device; where a head does not pass there, after them.

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
    _call: Call | None = None

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
            channels={"classifier": self.conv_seg.in_channels, "backbone": self.in_channels},
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
        if self._call is not None:
            self._call.taps.append(Tap(feat, logits, torch.is_grad_enabled()))
        return logits

    def _transform_inputs(self, inputs: Any) -> Any:
        transformed = super()._transform_inputs(inputs)
        if self._call is not None:
            self._call.inputs = transformed
        return transformed

    def loss(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Compute the losses of the base head and those of the branch.

        Takes what the base head's ``loss`` takes, the data samples among it.

        Raises
        ------
        UserError
            If the base head did not call ``cls_seg`` once on one feature map.
        """
        self._call = call = Call(self._data_samples(*args, *kwargs.values()))
        try:
            losses = super().loss(*args, **kwargs)
            tap = self._choose(call)
            losses.update(self._contrast(call, tap) if call.losses is None else call.losses)
        finally:
            self._call = None
        return losses

    def loss_by_feat(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Compute the losses of the base head; those of the branch before them, where it is clear what to contrast."""
        call = self._call
        if call is not None and call.losses is None and len(self._recorded(call)) == 1:
            call.losses = self._contrast(call, self._choose(call))
        return super().loss_by_feat(*args, **kwargs)

    def _contrast(self, call: Call, tap: Tap) -> dict[str, Tensor]:
        labels = BaseDecodeHead._stack_batch_gt(self, call.samples).squeeze(1)  # a head's own may stack edges, too
        ignore_index = 255 if self.ignore_index is None else self.ignore_index
        projection = getattr(self.contrast, "projection", None)  # a branch of one's own may have none
        backbone = getattr(projection, "taps", None) == "backbone"
        features = self._backbone_features(call, tap) if backbone else tap.features
        return self.contrast(features, tap.logits, labels, ignore_index=ignore_index)

    def _backbone_features(self, call: Call, tap: Tap) -> Tensor:
        features = call.inputs
        if not isinstance(features, Tensor) or features.shape[2:] != tap.logits.shape[2:]:
            got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise UserError(
                f"ContrastHead: projection taps the backbone, which gives {self.base_class.__name__} no single map of "
                f"the size of its logits {tuple(tap.logits.shape)}; got {got}; set projection=dict(taps='classifier')"
            )
        return features

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

    @staticmethod
    def _recorded(call: Call) -> list[Tap]:
        return [tap for tap in call.taps if tap.recorded] if torch.is_grad_enabled() else call.taps

    def _choose(self, call: Call) -> Tap:
        name, recorded = self.base_class.__name__, self._recorded(call)
        if not call.taps:
            raise UserError(f"ContrastHead: {name} never calls cls_seg while its loss is computed; {_allowed()}")
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


def build_branch(contrast: object, channels: Mapping[str, Any], **given: Any) -> torch.nn.Module:
    """Build the branch from its config; the head knows the channels of what can be tapped, and the other arguments.

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
    projection = contrast.get("projection")
    taps = projection.get("taps", "classifier") if isinstance(projection, Mapping) else "classifier"
    in_channels = channels[taps if taps in channels else "classifier"]  # the projection refuses other words
    if not isinstance(in_channels, int):
        raise UserError(
            "contrast.projection.taps: the decode head takes several maps of the backbone, of "
            f"{in_channels} channels; set taps to 'classifier'"
        )
    return MODELS.build({**config, "in_channels": in_channels, **given})


@cache
def contrast_class(base: type[BaseDecodeHead]) -> type[ContrastHead]:
    """Make the subclass of a decode head that carries a contrast branch; one per head."""
    return type(base)(f"Contrast{base.__name__}", (ContrastHead, base), {"__module__": __name__})


def _restore(base: type[BaseDecodeHead]) -> ContrastHead:
    return object.__new__(contrast_class(base))


def _allowed() -> str:
    return f"allowed: heads that classify one feature map with cls_seg, such as {', '.join(classifying_heads())}"
