"""Multi-scale evaluation with mirror images, of this project and by mmsegmentation's own test-time augmentation.

    python benchmarks/evaluation.py --spec results/camvid/runs/<run>/spec.yaml --images 50 --device cuda

Both predict the same images with the same weights, decoding included, and are scored by the same code. A finished
run's weights are used, or, with `--untrained`, arbitrary ones whose predictions vary over the image. Each line of the
output is one way of predicting; a table follows on the terminal.
"""

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmseg.models import SegTTAModel
from mmseg.registry import DATASETS
from torch import nn
from torch.utils.data import DataLoader, Subset

from pne.counts import scores
from pne.engine.evaluation import count_pixels
from pne.engine.inference import SCALES, Prediction, Views, predict_multi_scale_flip
from pne.engine.loaders import image_loader
from pne.engine.processes import choose_device
from pne.engine.provenance import device_name, versions
from pne.engine.record import peak_memory_mib, reset_peak_memory
from pne.engine.runner import prepare
from pne.engine.weights import build_plain, load_trained
from pne.spec import read_config, read_spec

TARGET = 1.5  # times faster than mmsegmentation on a GPU, at equal scores
EQUAL = 0.05  # percent of IoU in every class


def tta_pipeline(pipeline: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Turn a test pipeline into mmsegmentation's own for several scales and mirror images."""
    resize = next(
        (dict(step) for step in pipeline if step["type"] == "Resize"), {"type": "Resize", "scale_factor": 1.0}
    )
    resizes = []
    for factor in SCALES:
        step = {**resize, "keep_ratio": True}
        if step.get("scale") is not None:
            step["scale"] = tuple(int(side * factor + 0.5) for side in step["scale"])
        else:
            step["scale_factor"] = step["scale_factor"] * factor
        resizes.append(step)
    flips = [{"type": "RandomFlip", "prob": prob, "direction": "horizontal"} for prob in (0.0, 1.0)]
    annotations = [dict(step) for step in pipeline if step["type"] == "LoadAnnotations"]
    augment = {"type": "TestTimeAug", "transforms": [resizes, flips, annotations, [{"type": "PackSegInputs"}]]}
    return [dict(pipeline[0]), augment]


def predict_as_mmseg(model: nn.Module, loader: DataLoader) -> Iterator[Prediction]:
    """Predict by mmsegmentation's ``SegTTAModel``."""
    tta = SegTTAModel(module=model)
    tta.eval()
    for batch in loader:
        for sample in tta.test_step(batch):
            predicted = sample.pred_sem_seg.data.squeeze(0)
            yield Prediction(
                Path(sample.img_path).stem, predicted, sample.gt_sem_seg.data.squeeze(0).to(predicted.device)
            )


def measure(
    predict: Callable[[], Iterator[Prediction]], classes: int, ignore_index: int, device: torch.device
) -> dict[str, Any]:
    """Go through all images once; seconds per image after the first, memory, and IoU of every class."""
    reset_peak_memory(device)
    total = np.zeros((classes, classes), np.int64)
    marks = []
    with torch.inference_mode():
        for prediction in predict():
            total += count_pixels(prediction.predicted, prediction.labels, classes, ignore_index).cpu().numpy()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            marks.append(time.perf_counter())
    miou, _, iou = scores(total)
    seconds = (marks[-1] - marks[0]) / max(1, len(marks) - 1) if len(marks) > 1 else float("nan")
    return {"s_per_image": seconds, "peak_memory_mib": peak_memory_mib(device)[0], "miou": miou, "class_iou": iou}


def spread_predictions(model: nn.Module, config: Mapping[str, Any], device: torch.device) -> None:
    """Give an untrained network batch statistics of one image, and a classifier that predicts every class somewhere."""
    view = Views(config, scales=(1.0,))[0]["views"][0].to(device)
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None
    data = model.data_preprocessor({"inputs": [view, view.flip(-1)]}, False)
    with torch.no_grad():
        metas = [{"img_shape": view.shape[-2:]}] * 2
        model.train().encode_decode(data["inputs"], metas)
        logits = model.eval().encode_decode(data["inputs"], metas)
        heads = model.decode_head if isinstance(model.decode_head, nn.ModuleList) else [model.decode_head]
        spread = logits.std(dim=(0, 2, 3)).clamp(min=1e-6)
        classifier = heads[-1].conv_seg
        mean = logits.mean(dim=(0, 2, 3)) - classifier.bias
        classifier.weight /= spread[:, None, None, None]
        classifier.bias.copy_(-mean / spread)


def ways(
    model: nn.Module, config: Mapping[str, Any], images: int, device: torch.device
) -> dict[str, Callable[[], Iterator[Prediction]]]:
    """Return the ways of predicting by name, mmsegmentation's first."""
    loader = config["test_dataloader"]
    theirs = DATASETS.build({**loader["dataset"], "pipeline": tta_pipeline(loader["dataset"]["pipeline"])})
    ours = Views(loader["dataset"])
    number = min(images, len(ours))

    def load(dataset: Any) -> DataLoader:
        return image_loader(Subset(dataset, range(number)), loader["num_workers"], device)

    return {
        "mmseg": lambda: predict_as_mmseg(copy.deepcopy(model), load(theirs)),
        "pne": lambda: predict_multi_scale_flip(model, load(ours)),
        "pne bfloat16": lambda: predict_multi_scale_flip(model, load(ours), bfloat16=True),
    }


def largest_difference(one: Sequence[float | None], other: Sequence[float | None]) -> float:
    """Largest difference of IoU over the classes, in percent; infinite where only one has a class."""
    return max(
        (abs(a - b) if a is not None and b is not None else float("inf"))
        for a, b in zip(one, other, strict=True)
        if not (a is None and b is None)
    )


def compare(
    model: nn.Module, config: Mapping[str, Any], images: int, device: torch.device, rounds: int
) -> dict[str, dict[str, Any]]:
    """Measure every way in turns, so that whatever slows the machine down hits all alike; the fastest round counts.

    Each result also says how many times faster than mmsegmentation's it is, and the largest difference of IoU to it.
    """
    found: dict[str, dict[str, Any]] = {}
    ignore_index = Views(config["test_dataloader"]["dataset"]).dataset.ignore_index
    for _ in range(rounds):
        for name, predict in ways(model, config, images, device).items():
            result = measure(predict, model.num_classes, ignore_index, device)
            fastest = min(result["s_per_image"], found.get(name, result)["s_per_image"])
            found[name] = result | {"s_per_image": fastest}
    theirs = found["mmseg"]
    for result in found.values():
        result["times_faster"] = theirs["s_per_image"] / result["s_per_image"]
        result["largest_iou_difference"] = largest_difference(theirs["class_iou"], result["class_iou"])
    return found


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    command = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    command.add_argument("--spec", type=Path, required=True, help="spec.yaml of a run")
    command.add_argument("--untrained", action="store_true", help="arbitrary weights; the run need not be finished")
    command.add_argument("--images", type=int, default=20, help="default: %(default)s")
    command.add_argument("--rounds", type=int, default=3, help="the fastest counts (default: %(default)s)")
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    command.add_argument("--workers", type=int, help="instead of the run's")
    command.add_argument("--threads", type=int, help="instead of the run's")
    command.add_argument("--output", type=Path, help="append JSON lines to this file")
    return command


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    args = parser().parse_args(argv)
    run = read_spec(args.spec)
    device = choose_device(args.device)
    if args.untrained:
        prepared = prepare(run, read_config(args.spec), workers=args.workers)
        torch.manual_seed(0)
        model = build_plain(prepared["model"], device)
        spread_predictions(model, prepared["test_dataloader"]["dataset"], device)
    else:
        model, prepared, _ = load_trained(run, args.spec, device)
        prepared["test_dataloader"].update({} if args.workers is None else {"num_workers": args.workers})
    torch.set_num_threads(args.threads or run.runtime.threads)
    found = compare(model, prepared, args.images, device, args.rounds)
    images = min(args.images, len(Views(prepared["test_dataloader"]["dataset"])))
    print(f"{run.run}, {device_name(device)}, {images} images")
    print(f"{'':14}{'s/image':>10}{'times faster':>14}{'peak MiB':>10}{'mIoU':>8}{'largest IoU difference':>24}")
    for name, result in found.items():
        print(
            f"{name:14}{result['s_per_image']:10.4g}{result['times_faster']:14.2f}{result['peak_memory_mib']:10.0f}"
            f"{result['miou']:8.2f}{result['largest_iou_difference']:24.3f}"
        )
        if args.output is not None:
            line = {
                "way": name,
                "run": run.run,
                "device": device_name(device),
                "images": images,
                "untrained": args.untrained,
                "versions": versions(),
                **{key: value for key, value in result.items() if key != "class_iou"},
            }
            args.output.parent.mkdir(parents=True, exist_ok=True)
            with args.output.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
    print(f"To reach on a GPU: pne {TARGET} times faster, no difference above {EQUAL} % of IoU.")


if __name__ == "__main__":
    sys.exit(main())
