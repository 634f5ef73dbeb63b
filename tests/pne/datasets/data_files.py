"""Read, harm and load the files of a data set."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

import pne.datasets.registered  # noqa: F401 (registers the data sets)
from pne.datasets.layouts import layout

LOADING = [{"type": "LoadImageFromFile"}, {"type": "LoadAnnotations"}]
PIPELINE = [
    *LOADING,
    {"type": "RandomResize", "scale": (96, 64), "ratio_range": (0.5, 2.0), "keep_ratio": True},
    {"type": "RandomCrop", "crop_size": (32, 32), "cat_max_ratio": 0.75},
    {"type": "RandomFlip", "prob": 0.5},
    {"type": "PhotoMetricDistortion"},
    {"type": "PackSegInputs"},
]


def read(path: Path) -> np.ndarray:
    """Values of a picture as stored."""
    with Image.open(path) as picture:
        return np.asarray(picture)


def harm(path: Path, values: np.ndarray) -> None:
    """Write other values to a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint8)).save(path)


def dataset_config(root: Path, kind: str = "StreetCityDataset", split: str = "train", **settings) -> dict:
    """Config of one split of a data set with random transforms."""
    known = layout(kind).splits[split]
    prefix = {"img_path": known.images, "seg_map_path": known.labels}
    return {"type": kind, "data_root": str(root), "data_prefix": prefix, "pipeline": PIPELINE, **settings}


def assert_same_sample(found: dict, expected: dict) -> None:
    """Compare two packed samples bit by bit."""
    labels, same_labels = (sample["data_samples"].gt_sem_seg.data for sample in (found, expected))
    for one, other in ((found["inputs"], expected["inputs"]), (labels, same_labels)):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    assert found["data_samples"].metainfo == expected["data_samples"].metainfo
