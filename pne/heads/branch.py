"""The training-only branch of a decode head: projection, loss, weight and the randomness of the loss."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn as nn
from mmcv.cnn import build_norm_layer
from mmengine import dist
from mmseg.registry import MODELS
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from pne.errors import UserError
from pne.heads.config import build_loss, check_integer, check_keys, check_weight, option_names


def derive_seed(seed: int, rank: int, call: int) -> int:
    """Mix the seed of a branch, the rank of its process and the number of a call into one 63-bit seed.

    Equal arguments give equal seeds on every machine and Python version; any other argument gives an unrelated one.
    """
    digest = hashlib.blake2b(f"{seed}/{rank}/{call}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def call_generator(seed: int, rank: int, call: int, device: torch.device) -> torch.Generator:
    """Make the generator of one call of the loss; it costs no transfer and no synchronisation on CUDA."""
    return torch.Generator(device=device).manual_seed(derive_seed(seed, rank, call))


@contextmanager
def global_randomness_untouched(devices: Iterable[torch.device] = ()) -> Iterator[None]:
    """Restore the global generators of torch on leaving.

    Parameters
    ----------
    devices : iterable of torch.device
        CUDA devices whose generators are restored beside that of the CPU; other devices in it are passed over.
    """
    indices = sorted({torch.cuda.current_device() if d.index is None else d.index for d in devices if d.type == "cuda"})
    with torch.random.fork_rng(devices=indices):
        yield


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
    taps : {'classifier', 'backbone'}
        What ContrastHead gives it: the input of the head's pixel classifier, as the paper has it, or that of the head
        itself, one map of the backbone or several at one size, as the released code of CIPC has it.

    Raises
    ------
    UserError
        If `taps` is another word, a number of channels is no integer >= 1, or ``norm_cfg`` names a norm that mmcv
        cannot build for feature maps.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int = 256,
        hidden: int | None = None,
        norm_cfg: dict | None = None,
        seed: int = 0,
        taps: str = "classifier",
    ) -> None:
        super().__init__()
        if taps not in ("classifier", "backbone"):
            raise UserError(f"contrast.projection.taps: expected 'classifier' or 'backbone', got {taps!r}")
        self.taps = taps
        hidden = in_channels if hidden is None else hidden
        check_integer("contrast.projection.channels", channels, minimum=1)
        check_integer("contrast.projection.hidden", hidden, minimum=1)
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
        ``channels``, ``hidden``, ``norm_cfg`` and ``taps`` of the `Projection`.
    seed : int
        Seed of the projection's initial weights and of the draws of the loss.
    gradient_interval : int
        At training calls whose number it divides, the norm of the gradient of the loss on the embeddings is measured,
        without the weight. The statistic ``contrast_gradient_norm`` is the last one measured.

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
        gradient_interval: int = 50,
    ) -> None:
        super().__init__()
        check_weight("contrast.weight", weight)
        check_integer("contrast.start", start, minimum=0)
        check_integer("contrast.seed", seed, minimum=0)
        check_integer("contrast.gradient_interval", gradient_interval, minimum=1)
        projection = {} if projection is None else projection
        check_keys("contrast.projection", projection, option_names(Projection, but=("in_channels", "seed")))
        if projection.get("norm_cfg") is None:
            projection = {**projection, "norm_cfg": default_norm_cfg}
        self.weight, self.start, self.seed, self.gradient_interval = weight, start, seed, gradient_interval
        self.projection = Projection(in_channels, seed=seed, **projection)
        with global_randomness_untouched():
            self.loss = build_loss(loss, num_classes=num_classes, channels=self.projection.expand.out_channels)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("gradient_norm", torch.zeros(()))
        self._calls = 0  # the buffer's value on the host: reading the buffer would synchronise a CUDA device

    def forward(self, features: Tensor, logits: Tensor, labels: Tensor, ignore_index: int = 255) -> dict[str, Tensor]:
        """Compute the weighted loss and its statistics.

        Parameters
        ----------
        features : Tensor, shape (B, in_channels, h, w), floating
            What `taps` of the projection names; receives gradient.
        logits : Tensor, shape (B, C, h, w), floating
            Output of the pixel classifier.
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
            if loss.requires_grad and self._calls % self.gradient_interval == 0:
                self._measure_gradient(loss, embeddings)
            self._calls += 1
            self.calls += 1
        statistics = getattr(self.loss, "statistics", {})
        return {
            "loss_contrast": weight * loss,  # the second term of Eq. 4 (`combine-loss`); the weight is its alpha
            **{f"contrast_{name}": value for name, value in statistics.items()},
            "contrast_gradient_norm": self.gradient_norm,
        }

    def _measure_gradient(self, loss: Tensor, embeddings: Tensor) -> None:
        (gradient,) = torch.autograd.grad(loss, embeddings, retain_graph=True)
        self.gradient_norm = torch.linalg.vector_norm(gradient, dtype=torch.float32)

    def apply(self, fn: Callable[[nn.Module], None]) -> "ContrastBranch":
        """Apply ``fn`` to all modules; an initialiser draws here without moving global generators."""
        with global_randomness_untouched({parameter.device for parameter in self.parameters()}):
            return super().apply(fn)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.setdefault(f"{prefix}gradient_norm", self.gradient_norm)  # weights of before it was recorded
        super()._load_from_state_dict(state_dict, prefix, *args)
        if f"{prefix}calls" in state_dict:
            self._calls = int(state_dict[f"{prefix}calls"])

    def extra_repr(self) -> str:
        """Show the options of the branch itself."""
        return f"weight={self.weight}, start={self.start}, seed={self.seed}"


BRANCH_OPTIONS = option_names(ContrastBranch, but=("in_channels", "num_classes", "default_norm_cfg"))
