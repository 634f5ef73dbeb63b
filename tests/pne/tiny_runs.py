"""Small real runs: generated street-like images, a tiny segmentor, a spec and config on disk."""

import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pne.results import EvaluationResult, TrainResult, read_result
from pne.spec import Run, write_spec
from pne.spec.identity import canonical, digest
from pne.spec.stock import apply_changes

CLASSES = 11
SIZE = (32, 48)
PNE = {"type": "PNELoss"}
MEMORY = {"loss": {"type": "PixelContrastLoss", "memory_size": 4}, "weight": 0.1, "start": 3}
CONTRAST = {"loss": PNE, "weight": 1.3, "start": 0, "projection": {"channels": 12}}
RUN = {"iterations": 6, "batch_size": 2, "seed": 0, "precision": "fp32", "evaluations": ["single_scale"]}
SETTLED = {  # without batch norm and dropout, a batch in parts is the same mathematics
    "model.backbone.norm_cfg": {"type": "GN", "num_groups": 4},
    "model.decode_head.norm_cfg": {"type": "GN", "num_groups": 4},
    "model.decode_head.dropout_ratio": 0.0,
}


def draw_images(root: Path, train: int = 8, test: int = 4, size: tuple[int, int] = (40, 60)) -> Path:
    """Write images whose classes can be told by colour, in bands and blocks, with some ignored pixels."""
    random = np.random.default_rng(0)
    colours = random.integers(0, 256, (CLASSES, 3))
    for split, count in (("train", train), ("test", test)):
        for folder in ("img_dir", "ann_dir"):
            (root / folder / split).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            coarse = random.integers(0, CLASSES, (4, 5))
            labels = np.kron(coarse, np.ones((size[0] // 4, size[1] // 5))).astype(np.uint8)
            image = colours[labels] + random.normal(0, 40, (*labels.shape, 3))
            labels[:2] = 255
            image = Image.fromarray(image.clip(0, 255).astype(np.uint8))
            image.save(root / f"img_dir/{split}/{index:03d}.jpg", quality=95)
            Image.fromarray(labels).save(root / f"ann_dir/{split}/{index:03d}.png")
    return root


def plain_head() -> dict[str, Any]:
    return {
        "type": "FCNHead",
        "in_channels": 64,
        "in_index": 3,
        "channels": 16,
        "num_convs": 1,
        "concat_input": False,
        "num_classes": CLASSES,
        "norm_cfg": {"type": "BN"},
    }


def model_config(contrast: dict[str, Any] | None) -> dict[str, Any]:
    head = plain_head()
    if contrast is not None:
        head = {**head, "type": "ContrastHead", "base": "FCNHead", "contrast": {"type": "ContrastBranch", **contrast}}
    return {
        "type": "EncoderDecoder",
        "data_preprocessor": {
            "type": "SegDataPreProcessor",
            "mean": [123.675, 116.28, 103.53],
            "std": [58.395, 57.12, 57.375],
            "bgr_to_rgb": True,
            "size": SIZE,
        },
        "backbone": {
            "type": "ResNetV1c",
            "depth": 18,
            "base_channels": 8,
            "stem_channels": 8,
            "strides": (1, 2, 1, 1),
            "dilations": (1, 1, 2, 4),
            "contract_dilation": True,
        },
        "decode_head": head,
        "test_cfg": {"mode": "whole"},
    }


def run_config(data: Path, *, iterations: int = 1, contrast: dict[str, Any] | None = None) -> dict[str, Any]:
    load = [{"type": "LoadImageFromFile"}, {"type": "LoadAnnotations"}]
    augment = [
        {"type": "RandomResize", "scale": (60, 40), "ratio_range": (0.8, 1.5), "keep_ratio": True},
        {"type": "RandomCrop", "crop_size": SIZE, "cat_max_ratio": 0.75},
        {"type": "RandomFlip", "prob": 0.5},
        {"type": "PhotoMetricDistortion"},
    ]

    def dataset(split: str, *steps: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "CamVidDataset",
            "data_root": str(data),
            "data_prefix": {"img_path": f"img_dir/{split}", "seg_map_path": f"ann_dir/{split}"},
            "pipeline": [*load, *steps, {"type": "PackSegInputs"}],
        }

    return {
        "model": model_config(contrast),
        "train_dataloader": {
            "sampler": {"type": "PositionedInfiniteSampler"},
            "dataset": {"type": "PositionSeeded", "dataset": dataset("train", *augment)},
        },
        "test_dataloader": {"num_workers": 0, "dataset": dataset("test")},
        "train_cfg": {"type": "IterBasedTrainLoop", "max_iters": iterations},
        "optim_wrapper": {"type": "OptimWrapper", "optimizer": {"type": "SGD", "lr": 0.02, "momentum": 0.9}},
        "param_scheduler": [{"type": "PolyLR", "power": 0.9, "end": iterations, "by_epoch": False}],
    }


def write_run(
    folder: Path,
    data: Path,
    name: str = "tiny",
    contrast: dict[str, Any] | None = None,
    change: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """Write spec and config of a run below ``folder``; returns the path of the spec.

    ``change`` is as in `pne.spec.stock.apply_changes`; other keywords are those of ``RUN`` or of the spec's runtime.
    """
    about = {key: settings.pop(key, value) for key, value in RUN.items()}
    config = apply_changes(run_config(data, iterations=about["iterations"], contrast=contrast), change or {})
    loss = {**contrast["loss"]} if contrast else {}
    contrast = contrast and {"start": 0, **contrast, "loss": loss.pop("type"), "options": loss}
    runtime = {
        "data_root": str(data.parent),
        "results": str(folder / "results"),
        "device": "cpu",
        "workers": 0,
        "checkpoint_interval": 2,
        "log_interval": 2,
        **settings,
    }
    run = Run(
        run=name,
        track="test",
        dataset="cityscapes",
        dataset_title="generated",
        layout="camvid",
        folder=data.name,
        model="tiny",
        schedule="tiny",
        contrast=contrast,
        config_sha256=digest(canonical(config)),
        runtime=runtime,
        **about,
    )
    return write_spec(run, config)


def train_run(folder: Path, data: Path, name: str = "tiny", **settings: Any) -> Path:
    """Write a run as `write_run` does and train it; returns the path of the spec."""
    from pne.train import main

    spec = write_run(folder, data, name, **settings)
    assert main([str(spec)]) == 0
    return spec


def spied(folder: Path) -> dict[str, Any]:
    """Changes of a config that make a hook note what the training sees, below ``folder``."""
    imports = {"imports": ["spy_hooks"], "allow_failed_imports": False}
    return {"custom_imports": imports, "custom_hooks": [{"type": "SpyHook", "folder": str(folder)}]}


def work_of(spec: Path) -> Path:
    return spec.parents[2] / "work" / spec.parent.name


def trained(spec: Path) -> TrainResult:
    return read_result(spec.parent / "train.json", TrainResult)


def scored(spec: Path, evaluation: str = "single_scale") -> EvaluationResult:
    return read_result(spec.parent / f"{evaluation}.json", EvaluationResult)


def progress_of(spec: Path, name: str = "progress.json") -> dict[str, Any]:
    return json.loads((work_of(spec) / name).read_text())


def history_of(spec: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (spec.parent / "history.jsonl").read_text().splitlines()]


def final_state(spec: Path) -> dict[str, Any]:
    """Return the final weights by name."""
    from pne.engine import checkpoint

    return checkpoint.load(work_of(spec) / "final.pth")["state_dict"]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


# Trainings in processes of their own, which can be killed. They are forked from one process that has imported torch
# and never computed; importing it in each of them would take longer than their work.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pne.train", "pne.engine.session"])


class Training:
    """``python -m pne.train`` in a process of its own."""

    def __init__(self, *arguments: Any, **environment: Any) -> None:
        descriptor, name = tempfile.mkstemp(suffix=".log")
        os.close(descriptor)
        self.log = Path(name)
        self.process = FORKS.Process(target=_train, args=([str(word) for word in arguments], name, environment))
        self.process.start()

    def finish(self) -> tuple[int, str]:
        """Wait for the end; return exit status (negative: killed by that signal) and all output."""
        self.process.join(240)
        told = self.log.read_text()
        self.log.unlink()
        return self.process.exitcode, told


def _train(arguments: list[str], log: str, environment: dict[str, Any]) -> None:
    os.environ.update({name: str(value) for name, value in environment.items()})
    with Path(log).open("w", buffering=1) as sys.stdout:
        sys.stderr = sys.stdout
        for descriptor in (1, 2):  # of processes that this one starts
            os.dup2(sys.stdout.fileno(), descriptor)
        from pne.train import main

        sys.exit(main(arguments))


def signalled_at(spec: Path, signum: signal.Signals, iteration: int, *options: str) -> tuple[int, str]:
    """Start a training and send it a signal as soon as its checkpoint of ``iteration`` is there."""
    training, work = Training(*options, spec), work_of(spec) / ("retrain" if "--retrain" in options else "")
    while not (work / f"iter_{iteration}.pth").exists():
        assert training.process.is_alive(), training.finish()
        time.sleep(0.005)
    os.kill(training.process.pid, signum)
    return training.finish()


def train_in_two(*arguments: Any, **environment: Any) -> list[tuple[int, str]]:
    """Train in two processes, as torchrun starts them; return how each ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **environment}
    both = [Training(*arguments, RANK=rank, LOCAL_RANK=rank, **place) for rank in (0, 1)]
    return [one.finish() for one in both]
