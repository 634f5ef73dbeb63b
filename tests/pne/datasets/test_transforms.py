"""The quick transforms draw the same numbers and give the same pixels as mmsegmentation's own."""

import runpy
from pathlib import Path

import mmseg.datasets.transforms as theirs
import numpy as np
import pytest
import torch
from data_files import LOADING, assert_same_sample, dataset_config
from mmengine.dataset import Compose

from pne.datasets.positioned import Draw, PositionSeeded, sample_seed
from pne.datasets.transforms import QUICK, quicken
from pne.engine.loaders import build_dataset

RESIZE = {"type": "RandomResize", "scale": (120, 90), "ratio_range": (0.5, 2.0), "keep_ratio": True}
CROP = {"type": "RandomCrop", "crop_size": (48, 64), "cat_max_ratio": 0.75}
FLIP = {"type": "RandomFlip"}
DIRECTIONS = ["horizontal", "vertical", "diagonal"]
DISTORT = {"type": "PhotoMetricDistortion"}
PACK = {"type": "PackSegInputs"}


def pipeline_of(repository: Path, name: str) -> list[dict]:
    config = runpy.run_path(str(repository / f"experiments/datasets/{name}.py"))
    return config["train_dataloader"]["dataset"]["pipeline"]


def samples(pipeline: list[dict], images: list[dict], *, quick: bool) -> list[tuple]:
    """Samples and, of each, a number that is drawn after them."""
    composed = Compose(pipeline)
    if quick:
        quicken(composed.transforms)

    class Images:
        def __getitem__(self, index: int) -> tuple:
            return composed(images[index % len(images)].copy() | {"seg_fields": []}), np.random.rand()  # noqa: NPY002

    seeded = PositionSeeded(Images())
    return [seeded[Draw(position, position, sample_seed(3, position))] for position in range(40)]


def assert_same(pipeline: list[dict], images: list[dict]) -> None:
    ours, expected = (samples(pipeline, images, quick=quick) for quick in (True, False))
    for (sample, after), (same, after_same) in zip(ours, expected, strict=True):
        assert after == after_same
        assert sample["inputs"].is_contiguous()
        assert sample["data_samples"].gt_sem_seg.data.dtype == torch.int64
        assert_same_sample(sample, same)
    assert len({sample["inputs"].numpy().tobytes() for sample, _ in ours}) > 30


@pytest.fixture(scope="module")
def images(shared: Path) -> list[dict]:
    root = shared / "data/camvid_tiny"
    return [
        {
            "img_path": str(path),
            "seg_map_path": str(root / f"ann_dir/train/{path.stem}.png"),
            "label_map": None,
            "reduce_zero_label": False,
        }
        for path in sorted((root / "img_dir/train").iterdir())[:8]
    ]


@pytest.mark.parametrize("name", ["camvid", "street_city"])
def test_pixels_of_the_declared_pipelines(repository: Path, images: list[dict], name: str) -> None:
    assert_same(pipeline_of(repository, name), images)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([RESIZE, CROP | {"cat_max_ratio": 0.3}, PACK], id="crops often drawn again"),
        pytest.param([RESIZE, CROP | {"cat_max_ratio": 0.5, "ignore_index": 1}, PACK], id="another label ignored"),
        pytest.param([RESIZE, CROP | {"cat_max_ratio": 1.0}, PACK], id="any crop"),
        pytest.param([CROP | {"crop_size": (400, 100)}, DISTORT, PACK], id="crop larger than the image"),
        pytest.param([CROP, FLIP | {"prob": [0.3] * 3, "direction": DIRECTIONS}, PACK], id="all directions"),
        pytest.param([CROP, FLIP | {"prob": 1.0, "swap_seg_labels": [(1, 3)]}, PACK], id="labels swapped"),
        pytest.param([CROP, DISTORT | {"brightness_delta": 120, "hue_delta": 90}, PACK], id="strong distortion"),
    ],
)
def test_pixels_with_other_settings(images: list[dict], steps: list[dict]) -> None:
    assert_same([*LOADING, *steps], images)


def test_images_of_other_types_are_left_to_mmsegmentation(images: list[dict]) -> None:
    assert_same([LOADING[0] | {"to_float32": True}, LOADING[1], RESIZE, CROP, DISTORT, PACK], images)


def test_transforms_of_ones_own_stay_as_they_are() -> None:
    class Mine(theirs.RandomCrop):
        pass

    mine = Mine((4, 4))
    quicken([mine])
    assert type(mine) is Mine


def test_every_random_transform_of_a_trained_data_set_is_quick(street: Path, repository: Path) -> None:
    config = dataset_config(street, cache_data=True, pipeline=pipeline_of(repository, "camvid"))
    dataset = build_dataset({"type": "PositionSeeded", "dataset": config})
    expected = (theirs.RandomCrop, theirs.RandomFlip, theirs.PhotoMetricDistortion, theirs.PackSegInputs)
    assert [type(transform) for transform in dataset._rest.transforms[1:]] == [QUICK[kind] for kind in expected]
    draws = [Draw(position, position, position) for position in (5, 6, 5)]
    for together, alone in zip(dataset.__getitems__(draws), map(dataset.__getitem__, draws), strict=True):
        assert torch.equal(together["inputs"], alone["inputs"])


def test_several_data_sets_in_one_are_built(street: Path) -> None:
    part = dataset_config(street, pipeline=[*LOADING, PACK])
    assert len(build_dataset({"type": "ConcatDataset", "datasets": [part, part]})) == 400
