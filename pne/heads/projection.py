"""The projection from the features of a decode head to the embeddings that are contrasted."""

import torch
import torch.nn as nn
from mmcv.cnn import build_norm_layer
from mmengine import dist
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from pne.errors import UserError
from pne.heads.randomness import global_randomness_untouched


class Projection(nn.Module):
    """Project features pixel by pixel: 1x1 convolution, norm, ReLU, 1x1 convolution.

    It is built on the CPU from its own random stream and then moved to the default device: its weights depend on
    ``seed`` and the shapes alone, and building it leaves torch's global generators as they were.

    Parameters
    ----------
    in_channels : int
        Channels of the features.
    channels : int
        D, channels of the embeddings.
    hidden : int, optional
        Channels between the convolutions; ``in_channels`` where None.
    norm_cfg : dict, optional
        Config of the norm layer as mmcv takes it; batch norm where None.
    seed : int
        Seed of the initial weights (Kaiming normal; biases 0).

    Raises
    ------
    UserError
        If ``norm_cfg`` names a norm that mmcv cannot build for feature maps.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int = 256,
        hidden: int | None = None,
        norm_cfg: dict | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        hidden = in_channels if hidden is None else hidden
        with torch.device("cpu"), global_randomness_untouched():
            self.reduce = nn.Conv2d(in_channels, hidden, kernel_size=1, bias=False)
            self.norm = _build_norm(norm_cfg, hidden)
            self.expand = nn.Conv2d(hidden, channels, kernel_size=1)
            generator = torch.Generator("cpu").manual_seed(seed)
            for convolution in (self.reduce, self.expand):
                nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu", generator=generator)
            nn.init.zeros_(self.expand.bias)
        self.to(torch.get_default_device())

    def forward(self, features: Tensor) -> Tensor:
        """Project a feature map.

        Parameters
        ----------
        features : Tensor, shape (B, in_channels, h, w), floating
            Features of the decode head; they receive gradient.

        Returns
        -------
        Tensor, shape (B, D, h, w), floating
            Embeddings, not normalised.

        Raises
        ------
        UserError
            If batch norm would have to take its statistics from a single pixel.
        """
        self._check_statistics(features)
        return self.expand(torch.relu(self.norm(self.reduce(features))))

    def _check_statistics(self, features: Tensor) -> None:
        if not (self.norm.training and isinstance(self.norm, _BatchNorm)):
            return
        processes = dist.get_world_size() if isinstance(self.norm, nn.SyncBatchNorm) else 1
        if features.shape[0] * features.shape[2] * features.shape[3] * processes < 2:
            raise UserError(
                f"contrast.projection: {type(self.norm).__name__} needs more than one pixel per channel to train, got "
                f"features of shape {tuple(features.shape)}; raise the batch size or the crop, or set "
                "projection=dict(norm_cfg=dict(type='GN', num_groups=...))"
            )


def _build_norm(norm_cfg: dict | None, channels: int) -> nn.Module:
    norm_cfg = {"type": "BN"} if norm_cfg is None else dict(norm_cfg)
    try:
        _, norm = build_norm_layer(norm_cfg, channels)
        norm.eval()(torch.zeros(1, channels, 2, 2))  # LN takes no (B, C, h, w), GN must divide the channels
    except Exception as error:
        raise UserError(
            f"contrast.projection.norm_cfg: {norm_cfg} makes no norm for feature maps of {channels} channels "
            f"({error}); set projection=dict(norm_cfg=...) to BN, SyncBN, IN, LN2d or GN with num_groups that divide "
            "the channels"
        ) from error
    return norm.train()
