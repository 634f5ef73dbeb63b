"""Evaluation over scales and mirror images: ours against mmsegmentation's own test-time augmentation.

Both predict the same images with the same network: mmseg's ``SegTTAModel`` behind its ``TestTimeAug`` pipeline, and
`pne.engine.inference.predict_multi_scale_flip`. Times hold everything from the files on disk to the predicted classes,
with equally many loader processes; the first image is warm-up. The network is one of mmsegmentation's shipped configs
with random weights whose batch norm and classifier are fitted so that many classes are predicted; ``--checkpoint``
takes trained ones. Each variant gives one JSON line: seconds per image, how many times faster than mmseg it is, and the
largest difference of a class's IoU (in percent, each scored against the labels).

    python benchmarks/evaluation.py --out benchmarks/results/evaluation.jsonl
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import ConfigDict
from mmengine.dataset import pseudo_collate
from mmengine.runner import load_checkpoint
from mmseg.models import SegTTAModel
from mmseg.registry import DATASETS
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from pne.engine.confusion import count_pixels, scores
from pne.engine.data import image_loader
from pne.engine.inference import SCALES, Prediction, Views, predict_multi_scale_flip
from pne.engine.processes import choose_device
from pne.engine.provenance import device_name, versions
from pne.engine.registration import register
from pne.engine.weights import build_plain
from pne.stock import read_stock

CLASSES = 19
STOCK = "deeplabv3/deeplabv3_r101-d8_4xb2-40k_cityscapes-512x1024.py"
TINY = "fcn/fcn_r18-d8_4xb2-80k_cityscapes-512x1024.py"


def draw_images(folder: Path, count: int, size: tuple[int, int]) -> dict[str, Any]:
    """Write images of coloured blocks with labels; return the config of their data set."""
    random = np.random.default_rng(0)
    colours = random.integers(0, 256, (CLASSES, 3))
    for name in ("img_dir", "ann_dir"):
        (folder / name).mkdir(parents=True)
    for index in range(count):
        coarse = random.integers(0, CLASSES, (8, 16)).astype(np.uint8)
        labels = np.asarray(Image.fromarray(coarse).resize(size[::-1], Image.Resampling.NEAREST))
        image = colours[labels] + random.normal(0, 30, (*size, 3))
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(folder / f"img_dir/{index:04d}.png")
        Image.fromarray(labels).save(folder / f"ann_dir/{index:04d}.png")
    return {
        "type": "BaseSegDataset",
        "data_root": str(folder),
        "data_prefix": {"img_path": "img_dir", "seg_map_path": "ann_dir"},
        "img_suffix": ".png",
        "seg_map_suffix": ".png",
        "reduce_zero_label": False,
        "metainfo": {"classes": [f"class {index}" for index in range(CLASSES)]},
        "pipeline": [{"type": "LoadImageFromFile"}, {"type": "LoadAnnotations"}, {"type": "PackSegInputs"}],
    }


def build_network(stock: str, checkpoint: Path | None, device: torch.device) -> nn.Module:
    """Build a shipped model; without a checkpoint, fit random weights so that they predict many classes."""
    torch.manual_seed(0)
    model = build_plain(ConfigDict(read_stock(stock)["model"]), device)
    if checkpoint is not None:
        load_checkpoint(model, str(checkpoint), map_location="cpu")
        return model
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = None
    with torch.no_grad():
        noise = torch.randn(4, 3, 8, 16, device=device)
        images = noise.repeat_interleave(16, 2).repeat_interleave(16, 3)
        model.train()(images)
        logits = model.eval()(images)
        spread = logits.std(dim=(0, 2, 3))
        model.decode_head.conv_seg.weight /= spread[:, None, None, None]
        model.decode_head.conv_seg.bias.copy_(-logits.mean(dim=(0, 2, 3)) / spread)
    return model


def predict_as_mmseg(model: nn.Module, dataset: dict[str, Any], workers: int) -> Iterator[Prediction]:
    """Predict with mmseg's own pipeline and merging."""
    scales = [{"type": "Resize", "scale_factor": scale, "keep_ratio": True} for scale in SCALES]
    flips = [{"type": "RandomFlip", "prob": chance, "direction": "horizontal"} for chance in (0.0, 1.0)]
    steps = [scales, flips, [{"type": "LoadAnnotations"}], [{"type": "PackSegInputs"}]]
    pipeline = [{"type": "LoadImageFromFile"}, {"type": "TestTimeAug", "transforms": steps}]
    images = DATASETS.build({**dataset, "pipeline": pipeline})
    merging = SegTTAModel(module=model)
    for batch in DataLoader(images, batch_size=1, num_workers=workers, collate_fn=pseudo_collate):
        for sample in merging.test_step(batch):
            predicted = sample.pred_sem_seg.data.squeeze()
            yield Prediction(
                Path(sample.img_path).stem, predicted, sample.gt_sem_seg.data.squeeze().to(predicted.device)
            )


def measure(predictions: Iterator[Prediction], device: torch.device) -> tuple[float, np.ndarray]:
    """Seconds per image after the first one, and the IoU of each class in percent (NaN where it does not occur)."""
    total = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    count, start = 0, 0.0
    for count, prediction in enumerate(predictions):
        total += count_pixels(prediction.predicted, prediction.labels, CLASSES).cpu().numpy()
        if count == 0:
            start = time.perf_counter()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    iou = np.array([np.nan if value is None else value for value in scores(total)[2]])
    return (time.perf_counter() - start) / count, iou


def compare(model: nn.Module, dataset: dict[str, Any], workers: int, device: torch.device) -> list[dict[str, Any]]:
    """Measure mmseg's way and ours, in float32 and bfloat16."""
    views = Views(dataset)
    variants = {
        "mmseg": lambda: predict_as_mmseg(model, dataset, workers),
        "ours": lambda: predict_multi_scale_flip(model, image_loader(views, workers, device)),
        "ours_bfloat16": lambda: predict_multi_scale_flip(model, image_loader(views, workers, device), bfloat16=True),
    }
    lines: list[dict[str, Any]] = []
    reference: tuple[float, np.ndarray] | None = None
    for name, predict in variants.items():
        with torch.inference_mode():
            seconds, iou = measure(predict(), device)
        reference = reference or (seconds, iou)
        lines.append(
            {
                "variant": name,
                "time_s": seconds,
                "speedup": reference[0] / seconds,
                "largest_iou_difference": float(np.nanmax(np.abs(iou - reference[1]))),
                "miou": float(np.nanmean(iou)),
                "classes_predicted": int((np.nan_to_num(iou) > 0).sum()),
            }
        )
    return lines


def parser() -> argparse.ArgumentParser:
    """Command line of the benchmark."""
    command = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    command.add_argument("--config", default=STOCK, help="a config that mmsegmentation ships, 19 classes")
    command.add_argument("--checkpoint", type=Path, help="trained weights of that config")
    command.add_argument("--images", type=int, default=12, help="number of images, the first is warm-up")
    command.add_argument("--size", type=int, nargs=2, default=(1024, 2048), metavar=("HEIGHT", "WIDTH"))
    command.add_argument("--workers", type=int, default=4, help="loader processes")
    command.add_argument("--threads", type=int, default=1, help="CPU threads of the network")
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    command.add_argument("--tiny", action="store_true", help="a small network on small images: shows that it runs")
    command.add_argument("--out", type=Path, help="JSON lines are appended to this file")
    return command


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print a table, write JSON lines."""
    arguments = parser().parse_args(argv)
    if arguments.tiny:
        arguments.config, arguments.images, arguments.size, arguments.workers = TINY, 3, (64, 128), 0
    if arguments.images < 2:
        parser().error("--images: at least 2, since the first one is warm-up")
    register({})
    device = choose_device(arguments.device)
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        dataset = draw_images(Path(folder) / "images", arguments.images, tuple(arguments.size))
        model = build_network(arguments.config, arguments.checkpoint, device)
        lines = compare(model, dataset, arguments.workers, device)
    about = {
        "config": arguments.config,
        "size": list(arguments.size),
        "images": arguments.images,
        "workers": arguments.workers,
        "device": device_name(device),
        "versions": versions(),
    }
    print(f"{device_name(device)}, {arguments.config}, {arguments.size[0]} x {arguments.size[1]}")
    for line in lines:
        print(
            f"{line['variant']:14} {line['time_s']:8.3f} s/image  {line['speedup']:5.2f}x  "
            f"largest IoU difference {line['largest_iou_difference']:.3f}"
        )
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        with arguments.out.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps({**about, **line}) + "\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
