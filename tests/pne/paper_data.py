"""The paper's three data sets in their original formats on disk, a few images each, prepared as a user does it."""

import shutil
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from pne.datasets.prepare import prepare


def draw_cityscapes(root: Path, size: tuple[int, int] = (128, 256), per_split: int = 3) -> Path:
    """Draw files as Cityscapes lays them out: blocks of label ids that can be told by their colour."""
    random = np.random.default_rng(0)
    colours = random.integers(0, 256, (34, 3))
    for split, city in (("train", "aachen"), ("val", "frankfurt"), ("test", "berlin")):
        for number in range(per_split):
            stem = f"{city}_{number:06d}_000019"
            coarse = random.choice([7, 8, 11, 17, 21, 23, 24, 26, 33, 4], (4, 8))
            ids = np.kron(coarse, np.ones((size[0] // 4, size[1] // 8), int)).astype(np.uint8)
            image = (colours[ids] + random.normal(0, 20, (*size, 3))).clip(0, 255).astype(np.uint8)
            _save(root / f"leftImg8bit/{split}/{city}/{stem}_leftImg8bit.png", image)
            if split != "test":
                _save(root / f"gtFine/{split}/{city}/{stem}_gtFine_labelIds.png", ids)
    return root


def write_coco_stuff(root: Path, shared: Path) -> Path:
    """Lay real COCO-Stuff images out as the 10k release does: lists, images, labels as .mat files."""
    source = shared / "data/fixtures/cocostuff164k"
    for folder in ("imageLists", "annotations", "images"):
        (root / folder).mkdir(parents=True)
    for split, folder in (("train", "train2017"), ("test", "val2017")):
        stems = []
        for image in sorted((source / folder).glob("*.jpg")):
            stem = f"COCO_train2014_{image.stem}"
            labels = np.asarray(Image.open(source / "stuffthingmaps" / folder / f"{image.stem}.png")).astype(int)
            savemat(root / f"annotations/{stem}.mat", {"S": np.where(labels == 255, 0, labels + 1).astype(np.uint8)})
            shutil.copy(image, root / f"images/{stem}.jpg")
            stems.append(stem)
        (root / f"imageLists/{split}.txt").write_text("\n".join(stems) + "\n")
    return root


def copy_ade20k(root: Path, shared: Path) -> Path:
    """Lay real ADE20K images out as ADEChallengeData2016 does, two to train on and one to score."""
    source = shared / "data/fixtures/ade20k_sceneparsing"
    for number, split in ((1, "training"), (2, "training"), (3, "validation")):
        for folder, suffix in (("images", "jpg"), ("annotations", "png")):
            (root / folder / split).mkdir(parents=True, exist_ok=True)
            shutil.copy(source / folder / f"ADE_val_{number:08d}.{suffix}", root / folder / split)
    return root


def write_paper_data(root: Path, shared: Path) -> Path:
    """Write and prepare all three where the paper track looks for them; returns the data root."""
    prepare("cityscapes", draw_cityscapes(root / "cityscapes"))
    prepare("coco_stuff", write_coco_stuff(root / "coco_stuff10k", shared))
    prepare("ade20k", copy_ade20k(root / "ade/ADEChallengeData2016", shared))
    return root


def _save(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, compress_level=1)
