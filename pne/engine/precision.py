"""Mixed precision in bfloat16 without a loss scaler: its range is that of float32, so nothing needs scaling."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS
from torch import nn


@OPTIM_WRAPPERS.register_module()
class Bfloat16OptimWrapper(OptimWrapper):
    """Run the forward pass under bfloat16 autocast, on CUDA or CPU; parameters and their gradients stay float32.

    mmengine's ``AmpOptimWrapper`` needs CUDA and reads the scaler back in every iteration; this one does neither.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Enter autocast, and leave gradients unsynchronised until the update."""
        device = next(model.parameters()).device
        with super().optim_context(model), torch.autocast(device.type, torch.bfloat16):
            yield
