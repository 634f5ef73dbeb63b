"""A trained network whose pixels can be looked into: weights checked, input and output of its pixel classifier."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import ConfigDict
from mmengine.dataset import pseudo_collate
from mmseg.registry import MODELS
from mmseg.utils import register_all_modules
from numpy.typing import NDArray
from torch import Tensor, nn

import pne.datasets.registered
import pne.heads  # noqa: F401  (importing registers)
from pne.engine import checkpoint
from pne.engine.loaders import build_dataset
from pne.engine.processes import choose_device
from pne.engine.publication import verified_weights
from pne.errors import UserError
from pne.results import TrainResult, read_result
from pne.spec import Run, read_config, read_spec
from pne.spec.stock import without_pretrained


@dataclass(frozen=True)
class Pixels:
    """One image as the network sees it.

    Attributes
    ----------
    features : Tensor, shape (1, F, h, w), float32
        Input of the pixel classifier.
    logits : Tensor, shape (1, C, h, w), float32
        Its output.
    label : Tensor, shape (1, H, W), int64
        At the label's own size, 255 where ignored; padded as the image was.
    """

    features: Tensor
    logits: Tensor
    label: Tensor


class Network:
    """The network of one run with its final weights, in evaluation mode, and the images it is evaluated on.

    Parameters
    ----------
    spec : Path
        ``spec.yaml`` of a finished run.

    Raises
    ------
    UserError
        If the run has not finished, or its weights are missing or are not those of its result.
    """

    def __init__(self, spec: Path) -> None:
        register_all_modules(init_default_scope=True)
        self.run: Run = read_spec(spec)
        config = read_config(spec)
        self.train: TrainResult = read_result(self.run.directory / "train.json", TrainResult)
        path, _ = verified_weights(self.run, spec)
        self.device = choose_device(self.run.runtime.device)
        self.model: nn.Module = MODELS.build(ConfigDict(without_pretrained(config["model"])))
        load_weights(self.model, checkpoint.load(path)["state_dict"], self.run.run)
        self.model.to(self.device).eval()
        self.dataset = build_dataset(config["test_dataloader"]["dataset"])
        heads = self.model.decode_head
        self.head: nn.Module = heads[-1] if isinstance(heads, nn.ModuleList) else heads

    @property
    def branch(self) -> nn.Module | None:
        """The contrast branch, None for a run without one."""
        return getattr(self.head, "contrast", None)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names by label."""
        return tuple(self.dataset.metainfo["classes"])

    @property
    def palette(self) -> NDArray[np.uint8]:
        """Colours of the classes, shape (C, 3)."""
        return np.array(self.dataset.metainfo["palette"], np.uint8)

    def name(self, index: int) -> str:
        """Name of an image, without folder and ending."""
        return Path(self.dataset.get_data_info(index)["img_path"]).stem

    def batch(self, index: int) -> dict[str, Any]:
        """One image after the test pipeline, as a batch of one."""
        return pseudo_collate([self.dataset[index]])

    @torch.no_grad()
    def look(self, index: int) -> Pixels:
        """Run the network on one whole image and return what passes its pixel classifier.

        Raises
        ------
        UserError
            If the head does not call its pixel classifier once.
        """
        data = self.model.data_preprocessor(self.batch(index), False)
        taps: list[tuple[Tensor, Tensor]] = []
        classify = self.head.cls_seg

        def tapped(features: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            logits = classify(features, *args, **kwargs)
            taps.append((features, logits))
            return logits

        self.head.cls_seg = tapped  # an attribute of this one module, in front of its method
        try:
            self.model.encode_decode(data["inputs"], [sample.metainfo for sample in data["data_samples"]])
        finally:
            del self.head.cls_seg
        if len(taps) != 1:
            raise UserError(
                f"{self.run.run}: {type(self.head).__name__} classifies pixels {len(taps)} times per image, expected "
                "once; there is no one penultimate layer to extract"
            )
        features, logits = taps[0]
        label = data["data_samples"][0].gt_sem_seg.data.long()
        return Pixels(features.float(), logits.float(), _padded_like_image(label, data))

    @torch.no_grad()
    def see(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
        """Return one image (H, W, 3) RGB, its label (H, W) and its single-scale prediction (H, W), as it is scored."""
        batch = self.batch(index)
        sample = self.model.test_step(batch)[0]
        prediction = sample.pred_sem_seg.data[0].cpu().numpy()
        label = batch["data_samples"][0].gt_sem_seg.data[0].numpy()
        image = _as_rgb(batch["inputs"][0], self.model.data_preprocessor)
        if image.shape[:2] != prediction.shape:
            rows, columns = (np.arange(n) * m // n for n, m in zip(prediction.shape, image.shape[:2], strict=True))
            image = image[rows[:, None], columns[None]]
        return image, label.astype(np.uint8), prediction.astype(np.uint8)


def load_weights(model: nn.Module, state: dict[str, Tensor], run: str) -> None:
    """Load every tensor of the model.

    Raises
    ------
    UserError
        If a tensor is missing, left over or of another shape, naming the first three.
    """
    # The memory of a loss is filled in training alone; its buffers matter to no figure and may be absent.
    try:
        missing, unexpected = model.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise UserError(f"{run}: final.pth does not fit the model ({str(error).splitlines()[-1].strip()})") from error
    wrong = [name for name in [*missing, *unexpected] if ".contrast.loss." not in name]
    if wrong:
        raise UserError(f"{run}: final.pth does not fit the model: missing or left over {', '.join(wrong[:3])}")


def _padded_like_image(label: Tensor, data: dict[str, Any]) -> Tensor:
    """Extend a label (1, H, W) by ignored pixels where its image was padded, in the label's own scale."""
    height, width = data["data_samples"][0].metainfo["img_shape"][:2]
    padded_height, padded_width = data["inputs"].shape[2:]
    rows = round(label.shape[1] * padded_height / height) - label.shape[1]
    columns = round(label.shape[2] * padded_width / width) - label.shape[2]
    if rows <= 0 and columns <= 0:
        return label
    return nn.functional.pad(label, (0, max(columns, 0), 0, max(rows, 0)), value=255)


def _as_rgb(image: Tensor, preprocessor: nn.Module) -> NDArray[np.uint8]:
    """Turn a loaded image (3, H, W), BGR as mmcv reads it, into RGB (H, W, 3)."""
    array = image.cpu().numpy().transpose(1, 2, 0)
    to_rgb = getattr(preprocessor, "channel_conversion", True)
    return np.ascontiguousarray(array[..., ::-1] if to_rgb else array).astype(np.uint8)
