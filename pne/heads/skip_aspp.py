"""A light head in the manner of DeepLabV3+ that takes in several earlier maps of the backbone."""

from collections.abc import Sequence
from typing import Any

import torch
from mmcv.cnn import ConvModule
from mmseg.models.decode_heads.aspp_head import ASPPHead
from mmseg.models.utils import resize
from mmseg.registry import MODELS
from torch import Tensor, nn


@MODELS.register_module()
class SkipASPPHead(ASPPHead):
    """ASPP on the last map, then one earlier map after the other, the coarsest first; classifies at the finest.

    mmsegmentation's ``DepthwiseSeparableASPPHead`` takes in a single earlier map.

    Parameters
    ----------
    skip_in_channels, skip_channels : sequence of int
        Of each map before the last, in the backbone's order: its channels, and those that it is reduced to.
    **settings
        Those of `ASPPHead`; ``in_index`` and ``in_channels`` are of the last map.
    """

    def __init__(self, skip_in_channels: Sequence[int], skip_channels: Sequence[int], **settings: Any) -> None:
        super().__init__(**settings)
        parts = {"norm_cfg": self.norm_cfg, "act_cfg": self.act_cfg}
        self.reduce = nn.ModuleList(
            ConvModule(*channels, 1, **parts) for channels in zip(skip_in_channels, skip_channels, strict=True)
        )
        self.fuse = nn.ModuleList(
            ConvModule(self.channels + channels, self.channels, 3, padding=1, **parts) for channels in skip_channels
        )

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return logits (B, C, h, w) at the size of the first of the maps (B, channels, h, w) of the backbone."""
        features = self._forward_feature(inputs)
        for index in reversed(range(len(self.fuse))):
            skip = self.reduce[index](inputs[index])
            larger = resize(features, size=skip.shape[2:], mode="bilinear", align_corners=self.align_corners)
            features = self.fuse[index](torch.cat([larger, skip], dim=1))
        return self.cls_seg(features)
