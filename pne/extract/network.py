"""A trained network whose pixels can be looked into, and a class-balanced sample of what it says about them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from numpy.typing import NDArray
from torch import Tensor, nn

from pne.engine.loaders import build_dataset, inner
from pne.engine.processes import choose_device
from pne.engine.weights import load_trained
from pne.errors import UserError
from pne.extract.archives import Features
from pne.losses.pixels import resize_labels
from pne.spec import read_spec

IGNORE_INDEX = 255


@dataclass(frozen=True)
class Pixels:
    """One image as the network sees it.

    Attributes
    ----------
    features : Tensor, shape (1, F, h, w), float32
        Input of the pixel classifier.
    logits : Tensor, shape (1, C, h, w), float32
        Its output.
    tapped : Tensor, shape (1, G, h, w), float32
        What the projection of the contrast branch takes; `features` where there is no branch.
    label : Tensor, shape (1, H, W), int64
        At the label's own size, 255 where ignored; padded as the image was.
    """

    features: Tensor
    logits: Tensor
    tapped: Tensor
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
        self.run = read_spec(spec)
        self.device = choose_device(self.run.runtime.device)
        self.model, config, self.train = load_trained(self.run, spec, self.device, branch=True)
        self.dataset = build_dataset(config["test_dataloader"]["dataset"])
        # What mmseg.apis.inference_model asks of a model.
        self.model.cfg = Config({"test_pipeline": inner(config["test_dataloader"]["dataset"])["pipeline"]})
        self.model.dataset_meta = self.dataset.metainfo
        heads = self.model.decode_head
        self.head: nn.Module = heads[-1] if isinstance(heads, nn.ModuleList) else heads

    @property
    def branch(self) -> nn.Module | None:
        """The contrast branch, None for a run without one."""
        return getattr(self.head, "contrast", None)

    @property
    def about(self) -> dict[str, Any]:
        """What every archive says of where it comes from."""
        return {"run": self.run.run, "weights_sha256": self.train.weights_sha256}

    @property
    def metainfo(self) -> dict[str, NDArray[Any]]:
        """Names of the classes by label, and their colours, shape (C, 3), uint8."""
        known = self.dataset.metainfo
        return {"classes": np.array(known["classes"]), "palette": np.array(known["palette"], np.uint8)}

    def check_images(self, indices: Iterable[int]) -> None:
        """Raise ``UserError`` if the evaluated split has no image at one of the positions."""
        for index in indices:
            if index >= len(self.dataset):
                raise UserError(f"{self.run.run}: no image {index}; the evaluated split has {len(self.dataset)}")

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
        inputs: list[Any] = []
        classify, transform = self.head.cls_seg, self.head._transform_inputs

        def tapped(features: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            logits = classify(features, *args, **kwargs)
            taps.append((features, logits))
            return logits

        def noted(maps: Any) -> Any:
            inputs.append(transform(maps))
            return inputs[-1]

        self.head.cls_seg, self.head._transform_inputs = tapped, noted  # attributes of this module, before its methods
        try:
            self.model.encode_decode(data["inputs"], [sample.metainfo for sample in data["data_samples"]])
        finally:
            del self.head.cls_seg, self.head._transform_inputs
        if len(taps) != 1:
            raise UserError(
                f"{self.run.run}: {type(self.head).__name__} classifies pixels {len(taps)} times per image, expected "
                "once; there is no one penultimate layer to extract"
            )
        features, logits = taps[0]
        label = data["data_samples"][0].gt_sem_seg.data.long()
        backbone = self.branch is not None and self.branch.projection.taps == "backbone"
        tapped_features = (inputs[-1] if backbone else features).float()
        return Pixels(features.float(), logits.float(), tapped_features, _padded_like_image(label, data))

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


def pixel_keys(seed: int, image: int, pixels: int) -> NDArray[np.float64]:
    """Give each pixel of an image its random key; the keys depend on nothing but seed, image and position.

    Parameters
    ----------
    seed : int
        Seed of the sample, >= 0.
    image : int
        Index of the image in its split, >= 0.
    pixels : int
        Number of pixels of the feature map, row by row.

    Returns
    -------
    ndarray, shape (pixels,), float64
        Uniform in [0, 1).
    """
    return np.random.default_rng([seed, image]).random(pixels)


def smallest_keys(keys: NDArray[np.float64], classes: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    """Return the positions of the ``size`` smallest keys of each class, by class and then by key.

    Since a key is drawn for the pixel alone, this is a uniform sample of each class's pixels, and two models that are
    shown the same labels keep the same pixels.
    """
    order = np.lexsort((keys, classes))
    ordered = classes[order]
    return order[np.arange(len(order)) - np.searchsorted(ordered, ordered) < size]


def extract_features(network: Network, per_class: int, seed: int) -> Features:
    """Sample pixels of every class, by label and among the correctly predicted ones.

    Labels are brought to the size of the feature map as the losses do it; the prediction is that of the feature map's
    cell, before upsampling.

    Parameters
    ----------
    network : Network
    per_class : int
        Most pixels of a class in each of the two samples.
    seed : int
        Seed of the samples. Runs on the same images with feature maps of one size share the sample by label.
    """
    kept: dict[str, NDArray] = {}
    images = range(len(network.dataset))
    for image in images:
        pixels = network.look(image)
        height, width = pixels.logits.shape[2:]
        label = resize_labels(pixels.label, height, width).flatten().cpu().numpy()
        confidence, prediction = (part.cpu().numpy() for part in pixels.logits[0].flatten(1).softmax(0).max(0))
        cells = np.flatnonzero((label != IGNORE_INDEX) & (label >= 0) & (label < len(network.metainfo["classes"])))
        new = {
            "key": pixel_keys(seed, image, height * width)[cells],
            "label": label[cells].astype(np.int16),
            "prediction": prediction[cells].astype(np.int16),
            "confidence": confidence[cells].astype(np.float32),
            "image": np.full(len(cells), image, np.int32),
            "position": np.stack([cells // width, cells % width], 1).astype(np.int32),
            "grid": np.tile(np.array([height, width], np.int32), (len(cells), 1)),
        }
        before = len(kept.get("key", ()))
        small = {name: np.concatenate([kept[name], array]) if kept else array for name, array in new.items()}
        rows = np.union1d(*_samples(small, per_class))
        large = _rows(network, pixels, cells[rows[rows >= before] - before])
        old = rows[rows < before]
        kept = {name: array[rows] for name, array in small.items()} | {
            name: np.concatenate([kept[name][old], array]) if kept else array for name, array in large.items()
        }
    by_label, by_correct = _samples(kept, per_class)
    order = np.concatenate([by_label, by_correct[~np.isin(by_correct, by_label)]])
    del kept["key"]
    return Features(
        about={**network.about, "seed": seed, "per_class": per_class, "images": len(images)},
        by_label=np.isin(order, by_label),
        by_correct=np.isin(order, by_correct),
        names=np.array([network.name(image) for image in images]),
        **network.metainfo,
        **{name: array[order] for name, array in kept.items()},
    )


def _samples(pixels: dict[str, NDArray], per_class: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the sample by label and of that among the correctly predicted pixels."""
    correct = np.flatnonzero(pixels["label"] == pixels["prediction"])
    chosen = smallest_keys(pixels["key"][correct], pixels["label"][correct], per_class)
    return smallest_keys(pixels["key"], pixels["label"], per_class), correct[chosen]


@torch.no_grad()
def _rows(network: Network, pixels: Pixels, chosen: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
    """Take the penultimate features, and the projection where there is one, of chosen cells of the feature map."""
    index = torch.as_tensor(chosen, device=pixels.features.device)

    def take(maps: torch.Tensor) -> NDArray[np.float32]:
        return maps[0].flatten(1)[:, index].T.float().cpu().numpy()

    rows = {"penultimate": take(pixels.features)}
    if network.branch is not None:
        rows["projection"] = take(network.branch.projection(pixels.tapped))
    return rows
