"""Declared runs on made-up images: what the parts train, load and evaluate."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.gpu_check.report import Report
from pne.datasets.layouts import layout
from pne.spec import Run, load_track, write_spec
from pne.spec.identity import canonical, digest
from pne.spec.stock import without_pretrained

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


def draw_images(folder: Path, name: str, count: int, size: tuple[int, int]) -> None:
    """Write ``count`` images of (height, width) in each split of a layout: coloured blocks, some pixels ignored."""
    random, about = np.random.default_rng(0), layout(name)
    colours = random.integers(0, 256, (max(about.label_values) + 1, 3))
    for split, places in about.splits.items():
        for index in range(count if places.labels else 0):
            blocks = random.choice(about.label_values, (4, 5))
            label = np.kron(blocks, np.ones((-(-size[0] // 4), -(-size[1] // 5)), int))[: size[0], : size[1]]
            image = (colours[label] + random.normal(0, 30, (*label.shape, 1))).clip(0, 255)
            label[:2] = about.void
            stem = f"{split}_{index:03d}"
            files = {
                folder / places.images / f"{stem}{about.image_suffix}": image,
                folder / places.labels / f"{stem}{about.label_suffix}": label,
            }
            for path, array in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(array.astype(np.uint8)).save(path)


def street_run(report: Report, name: str, **changes: Any) -> tuple[Run, dict[str, Any]]:
    """Declare a run on street images: that of track camvid with ResNet-18 and PNE, or its tiny sibling."""
    track = "camvid_tiny" if report.tiny else "camvid"
    return declared(report, name, track, model="deeplabv3_r50", loss="PNELoss", **changes)


def street_images(report: Report) -> None:
    """Write the images that `street_run` is trained and scored on."""
    name, count, size = ("camvid_tiny", 4, (180, 240)) if report.tiny else ("camvid", 48, (360, 480))
    draw_images(report.folder / "data" / name, name, count, size)


def declared(
    report: Report,
    name: str,
    track: str,
    *,
    model: str,
    dataset: str = "cityscapes",
    loss: str | None = None,
    iterations: int | None = None,
    **runtime: Any,
) -> tuple[Run, dict[str, Any]]:
    """Declare a run of a track under another name, with random weights; returns it and its config.

    The report's folder holds the data and, below ``name``, the results. Model and data set are named as the paper does;
    ``loss`` is that of the run's contrast with default options, None a run without. ``iterations`` stand in place of
    the track's, other keywords in place of its runtime's.
    """
    runtime = {"device": report.device.type, **({"workers": 0} if report.tiny else {}), **runtime}
    where = {"results": report.folder / name, "data_root": report.folder / "data"}
    found = load_track(track, experiments=EXPERIMENTS, iterations=iterations, runtime=runtime, **where)
    alike = [run for run in found.runs.values() if (run.model, run.dataset) == (model, dataset)]
    contrasts = [run.contrast or {"loss": None} for run in alike]
    run = next(r for r, c in zip(alike, contrasts, strict=True) if c["loss"] == loss and not c.get("options"))
    config = found.config(run.run).to_dict()
    config["model"] = without_pretrained(config["model"])
    return run.model_copy(update={"run": name, "config_sha256": digest(canonical(config))}), config


def street_spec(report: Report, name: str, **changes: Any) -> str:
    """Write the files of a `street_run`, and return the path of its spec."""
    return str(write_spec(*street_run(report, name, **changes)))
