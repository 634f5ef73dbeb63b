"""Predictions at the size of the label: single scale, and the mean over scales and mirror images."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmseg.models.utils import resize
from mmseg.registry import DATASETS, TRANSFORMS
from mmseg.structures import SegDataSample
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from pne.datasets.files import naming_files
from pne.engine.command import told_out_of_memory
from pne.engine.loaders import build_dataset, check_folder, end_workers, image_loader
from pne.errors import UserError

SCALES = (0.75, 1.0, 1.25, 1.5, 1.75, 2.0)


class Prediction(NamedTuple):
    """Predicted and labelled class of every pixel of one image; (H, W), int64, on the device of the model.

    ``confidence``, (H, W), float32, is the probability of the predicted class, where it is known.
    """

    name: str
    predicted: Tensor
    labels: Tensor
    confidence: Tensor | None = None


def open_images(config: Mapping[str, Any], evaluation: str) -> Any:
    """Return the test images of a data set's config as an evaluation takes them.

    Parameters
    ----------
    config : mapping
        Of the test data set.
    evaluation : str
        ``single_scale`` gives the data set itself, ``multi_scale_flip`` its `Views`.

    Raises
    ------
    UserError
        If its folders are not there or hold no images.
    """
    return build_dataset(config) if evaluation == "single_scale" else Views(config)


class _Chosen(Subset):
    def __getitems__(self, positions: Sequence[int]) -> list[Any]:
        return [self[position] for position in positions]

    def __getitem__(self, position: int) -> Any:
        images, index = self.dataset, self.indices[position]
        with naming_files(images.dataset if isinstance(images, Views) else images, index):
            return images[index]


def predict(
    model: nn.Module, images: Any, chosen: Sequence[int], loader: Mapping[str, Any], *, bfloat16: bool = False
) -> Iterator[Prediction]:
    """Predict chosen images of what `open_images` returned, in their order; call it inside of `predicting`.

    Parameters
    ----------
    model : BaseSegmentor
        In evaluation mode.
    images : BaseSegDataset or Views
    chosen : sequence of int
        Positions in ``images``.
    loader : mapping
        ``test_dataloader`` of a prepared config: number of workers, images per batch.
    bfloat16 : bool
        Run the network under bfloat16 autocast.
    """
    several, device = isinstance(images, Views), next(model.parameters()).device
    batch_size = 1 if several else loader.get("batch_size", 1)
    batches = image_loader(_Chosen(images, chosen), loader["num_workers"], device, batch_size)
    found = predict_multi_scale_flip(model, batches, bfloat16) if several else predict_single_scale(model, batches)
    try:
        yield from found
    finally:
        end_workers(batches)


@contextmanager
def predicting(device: torch.device, bfloat16: bool = False) -> Iterator[None]:
    """Compute without gradients inside the block, and under bfloat16 autocast if asked to.

    cuDNN chooses its algorithms by rule: test images have many sizes, and it would try all algorithms for each.

    Raises
    ------
    OutOfMemoryFailure
        If memory does not suffice for an image.
    """
    advice = "a GPU with more memory, or the CPU (--config device=cpu)"
    if not bfloat16:
        advice = f"--bfloat16 (of pne.evaluate and pne.submission), {advice}"
    benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        with (
            told_out_of_memory("in predicting", advice),
            torch.inference_mode(),
            torch.autocast(device.type, torch.bfloat16, enabled=bfloat16),
        ):
            yield
    finally:
        torch.backends.cudnn.benchmark = benchmark


def predict_single_scale(model: nn.Module, loader: DataLoader) -> Iterator[Prediction]:
    """Predict each image once, through the test pipeline and mmseg's own test step.

    Parameters
    ----------
    model : BaseSegmentor
        In evaluation mode.
    loader : DataLoader
        Of samples after the test pipeline, which keeps labels at their own size.
    """
    for batch in loader:
        for sample in model.test_step(batch):
            labels = sample.gt_sem_seg.data.squeeze(0)
            predicted = sample.pred_sem_seg.data.squeeze(0)
            logits = sample.seg_logits.data.float()
            confidence = (logits.amax(0) - logits.logsumexp(0)).exp()
            yield Prediction(Path(sample.img_path).stem, predicted, labels.to(predicted.device), confidence)


class Views(Dataset):
    """Images at several scales with their labels, decoded once and resized once per scale.

    Parameters
    ----------
    config : mapping
        The test data set's config. Its pipeline may read files, resize and pack; a resizing in it gives the size of
        scale 1, without one that is the image's own size.
    scales : sequence of float
        Factors of that size.

    Notes
    -----
    Each item is a dict: ``name``; ``labels`` (H, W), int64, at the original size; ``views``: per scale a uint8 image
    (3, h, w), channels as decoded.
    """

    def __init__(self, config: Mapping[str, Any], scales: Sequence[float] = SCALES) -> None:
        pipeline = [dict(step) for step in config["pipeline"]]
        self.resizes = [TRANSFORMS.build(step) for step in _resizes(pipeline, scales)]
        reading = [step for step in pipeline if step["type"].startswith("Load")]
        check_folder(config)
        self.dataset = DATASETS.build({**config, "pipeline": reading})
        self.dataset.full_init()

    def __len__(self) -> int:
        """Number of images."""
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Read one image and resize it to every scale."""
        read = self.dataset[index]
        views = []
        for transform in self.resizes:
            image = transform({"img": read["img"], "img_shape": read["img"].shape[:2]})["img"]
            views.append(torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))))
        labels = torch.from_numpy(read["gt_seg_map"].astype(np.int64))
        return {"name": Path(read["img_path"]).stem, "labels": labels, "views": views}


def _resizes(pipeline: list[dict[str, Any]], scales: Sequence[float]) -> list[dict[str, Any]]:
    unknown = [step["type"] for step in pipeline if step["type"] not in ("Resize", "PackSegInputs")]
    unknown = [name for name in unknown if not name.startswith("Load")]
    resizes = [step for step in pipeline if step["type"] == "Resize"]
    if unknown or len(resizes) > 1:
        raise UserError(
            "multi_scale_flip: the test pipeline may read files, resize once and pack; "
            f"got {', '.join(step['type'] for step in pipeline)}"
        )
    if not resizes:
        return [{"type": "Resize", "scale_factor": scale, "keep_ratio": True} for scale in scales]
    base = resizes[0]
    if base.get("scale") is not None:
        width, height = base["scale"]
        sizes = [(int(width * scale + 0.5), int(height * scale + 0.5)) for scale in scales]
        return [{**base, "scale": size} for size in sizes]
    return [{**base, "scale_factor": base["scale_factor"] * scale} for scale in scales]


def predict_multi_scale_flip(model: nn.Module, loader: DataLoader, bfloat16: bool = False) -> Iterator[Prediction]:
    """Predict from the mean class probability over scales, each as it is and mirrored.

    The probabilities are those of mmseg's test-time augmentation: softmax of the scores after resizing to the label's
    size. An image and its mirror go through the network as one batch.

    Parameters
    ----------
    model : BaseSegmentor
        In evaluation mode.
    loader : DataLoader
        Of items of `Views`, one per batch.
    bfloat16 : bool
        Run the network under bfloat16 autocast; probabilities are summed in float32.
    """
    device = next(model.parameters()).device
    for batch in loader:
        for name, labels, *views in zip(batch["name"], batch["labels"], *batch["views"], strict=True):
            size = tuple(labels.shape)
            total = sum_of_probabilities(model, [view.to(device, non_blocking=True) for view in views], size, bfloat16)
            confidence, predicted = (total / (2 * len(views))).max(0)
            yield Prediction(name, predicted, labels.to(device, non_blocking=True), confidence)


def sum_of_probabilities(model: nn.Module, views: Sequence[Tensor], size: tuple[int, int], bfloat16: bool) -> Tensor:
    """Sum the class probabilities of the views and their mirror images.

    Parameters
    ----------
    model : BaseSegmentor
        The network.
    views : sequence of Tensor, each (3, h, w), uint8
        One image at several scales.
    size : (int, int)
        (height, width) of the result.
    bfloat16 : bool
        Autocast of the network.

    Returns
    -------
    Tensor, shape (C, H, W), float32
    """
    total: Tensor | None = None
    for view in views:
        for logits in _logits_of_both(model, view, size, bfloat16):
            probabilities = logits.softmax(0)
            total = probabilities if total is None else total.add_(probabilities)
    if total is None:
        raise ValueError("no views")
    return total


def _logits_of_both(model: nn.Module, view: Tensor, size: tuple[int, int], bfloat16: bool) -> Tensor:
    """Scores (2, C, H, W), float32, of a view and of its mirror image, mirrored back."""
    shape = tuple(view.shape[-2:])
    meta = {"ori_shape": size, "img_shape": shape, "pad_shape": shape}
    samples = [SegDataSample(metainfo=meta) for _ in range(2)]
    data = model.data_preprocessor({"inputs": [view, view.flip(-1)], "data_samples": samples}, False)
    metas = [sample.metainfo for sample in data["data_samples"]]
    with torch.autocast(view.device.type, torch.bfloat16) if bfloat16 else nullcontext():
        logits = model.inference(data["inputs"], metas)
    left, right, top, bottom = metas[0].get("img_padding_size", metas[0].get("padding_size", (0, 0, 0, 0)))
    logits = logits.float()[..., top : logits.shape[-2] - bottom, left : logits.shape[-1] - right]
    logits = torch.stack([logits[0], logits[1].flip(-1)])
    return resize(logits, size=size, mode="bilinear", align_corners=model.align_corners, warning=False)
