"""The doctor tells COCO-Stuff labels in another numbering than that which is trained on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper_data import write_coco_stuff
from PIL import Image

from pne.datasets import layouts
from pne.datasets.coco_stuff10k import TRAIN_IDS
from pne.datasets.doctor import check
from pne.datasets.prepare import prepare

LAST = 171
RELEASED = np.zeros(LAST + 1, np.uint8)
"""Id in the release, 1 to 182, of every id that is trained on."""
RELEASED[TRAIN_IDS[TRAIN_IDS > 0]] = np.flatnonzero(TRAIN_IDS)


@pytest.fixture
def root(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Real samples prepared as the 10k release, said to be all that there are; one shows all classes."""
    monkeypatch.setenv("PNE_CACHE", str(tmp_path / "cache"))
    root = write_coco_stuff(tmp_path / "coco_stuff10k", shared)
    prepare("coco_stuff", root)
    known = layouts.LAYOUTS["coco_stuff"]
    whole = {
        name: replace(split, count=len(list((root / split.images).iterdir()))) for name, split in known.splits.items()
    }
    monkeypatch.setitem(layouts.LAYOUTS, "coco_stuff", replace(known, splits=whole))
    first = labels(root)[1]
    with Image.open(first) as picture:
        values = np.array(picture)
    values.ravel()[: LAST + 1] = np.arange(LAST + 1)
    Image.fromarray(values).save(first)
    assert "train2014" in str(first)
    return root


def labels(root: Path) -> list[Path]:
    return sorted((root / "annotations").glob("*2014/*.png"), reverse=True)


def renumber(root: Path, change: Callable[[np.ndarray], np.ndarray]) -> str:
    """Change every label; returns what the doctor then calls errors."""
    for path in labels(root):
        with Image.open(path) as picture:
            values = np.asarray(picture).astype(int)
        Image.fromarray(change(values).astype(np.uint8)).save(path)
    return "\n".join(map(str, check("coco_stuff", root).errors))


def test_prepared_labels_are_healthy(root: Path) -> None:
    assert renumber(root, lambda values: values) == ""


def test_the_numbers_that_the_network_sees(root: Path) -> None:
    """0 to 170 and 255 for void, as mmsegmentation makes of them when it loads them."""
    found = renumber(root, lambda values: (values - 1) % 256)
    assert f"{len(labels(root))} labels hold values out of range (expected 1 to 171, void 0, found 255)" in found
    assert "they look shifted by one (255 for void, where void is 0 here)" in found
    assert "python -m pne.datasets.prepare coco_stuff" in found


def test_numbers_reduced_by_one_within_the_legal_range(root: Path) -> None:
    found = renumber(root, lambda values: np.maximum(values - 1, 0))
    assert "train: 1 of 171 classes never occur" in found
    assert "the last class is among them: the values look shifted by one" in found


def test_numbers_raised_by_one(root: Path) -> None:
    found = renumber(root, lambda values: values + 1)
    assert "1 labels hold values out of range (expected 1 to 171, void 0, found 172)" in found
    assert "they look shifted by one" in found


def test_the_numbers_of_the_release(root: Path) -> None:
    found = renumber(root, lambda values: RELEASED[values])
    assert "expected 1 to 171, void 0, found 172, 173" in found
    assert "they look like ids of the release (1 to 182); make them again with python -m pne.datasets.prepare" in found


def test_the_numbers_of_the_larger_data_set(root: Path) -> None:
    """0 to 181 and 255 for unlabelled, as COCO-Stuff 164k stores them."""
    found = renumber(root, lambda values: (RELEASED[values].astype(int) - 1) % 256)
    assert "they look like labels of COCO-Stuff 164k (0 to 181, 255 for void)" in found
