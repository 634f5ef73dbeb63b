"""Where each data set keeps its files, what its labels mean, and how many images the official splits have.

The one home of these facts; nothing here imports torch. Class names of data sets that mmsegmentation ships stay there.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pne.datasets.synthetic_street.variants import IGNORE_INDEX, VARIANTS, Variant
from pne.errors import UserError


@dataclass(frozen=True)
class Split:
    """One split of a data set.

    Attributes
    ----------
    images, labels : str
        Folders below the data root, searched recursively. ``labels`` is None where labels are not published.
    count : int
        Official number of images.
    """

    images: str
    labels: str | None
    count: int


@dataclass(frozen=True)
class Layout:
    """Facts about one data set on disk, as mmsegmentation reads it.

    Attributes
    ----------
    name, title : str
        Key of the data set, and how a text calls it.
    dataset_type : str
        The mmsegmentation data set class that reads it.
    splits : dict of str to Split
        The splits by name; the first is trained on.
    image_suffix, label_suffix : str
        Endings of the file names; what precedes them pairs an image with its label.
    num_classes : int
        Number of classes.
    label_values : range
        Legal label values on disk besides ``void``.
    void : frozenset of int
        Label values on disk that are ignored.
    size : (int, int), optional
        (height, width) that all images have; None where sizes differ.
    classes, palette : tuple
        Names and RGB colours where this project defines the data set class; empty otherwise.
    other_sizes : bool
        Copies at another, common resolution are usual (a warning, not an error).
    preparation : str
        The command that makes missing label files; empty if there is none.
    hash_images : bool
        The fingerprint covers the pixels of images, not only their names and sizes in bytes: small data sets that are
        drawn on the spot, where PNG compression may differ.
    """

    name: str
    title: str
    dataset_type: str
    splits: dict[str, Split]
    image_suffix: str
    label_suffix: str
    num_classes: int
    label_values: range
    void: frozenset[int]
    size: tuple[int, int] | None = None
    classes: tuple[str, ...] = ()
    palette: tuple[tuple[int, int, int], ...] = ()
    other_sizes: bool = False
    preparation: str = ""
    hash_images: bool = False

    @property
    def metainfo(self) -> dict[str, Any]:
        """Class names and palette in the form of mmsegmentation's ``METAINFO``."""
        return {"classes": self.classes, "palette": [list(colour) for colour in self.palette]}


CAMVID_CLASSES = (
    ("Sky", (128, 128, 128)),
    ("Building", (128, 0, 0)),
    ("Pole", (192, 192, 128)),
    ("Road", (128, 64, 128)),
    ("Pavement", (60, 40, 222)),
    ("Tree", (128, 128, 0)),
    ("SignSymbol", (192, 128, 128)),
    ("Fence", (64, 64, 128)),
    ("Car", (64, 0, 128)),
    ("Pedestrian", (64, 64, 0)),
    ("Bicyclist", (0, 128, 192)),
)
"""Names, order and colours of the 11-class split (Badrinarayanan et al., SegNet)."""

_CITYSCAPES = Layout(
    name="cityscapes",
    title="Cityscapes",
    dataset_type="CityscapesDataset",
    splits={
        "train": Split("leftImg8bit/train", "gtFine/train", 2975),
        "val": Split("leftImg8bit/val", "gtFine/val", 500),
        # Label files of the test split exist, but hold nothing to score.
        "test": Split("leftImg8bit/test", None, 1525),
    },
    image_suffix="_leftImg8bit.png",
    label_suffix="_gtFine_labelTrainIds.png",
    num_classes=19,
    label_values=range(19),
    void=frozenset({IGNORE_INDEX}),
    size=(1024, 2048),
    preparation="python -m pne.datasets.prepare cityscapes",
)

_COCO_STUFF = Layout(
    name="coco_stuff",
    title="COCO-Stuff 10k",
    dataset_type="COCOStuffDataset",
    splits={
        "train": Split("images/train2014", "annotations/train2014", 9000),
        "test": Split("images/test2014", "annotations/test2014", 1000),
    },
    image_suffix=".jpg",
    label_suffix="_labelTrainIds.png",
    num_classes=171,
    label_values=range(1, 172),
    void=frozenset({0}),
    preparation="python -m pne.datasets.prepare coco_stuff",
)

_ADE20K = Layout(
    name="ade20k",
    title="ADE20K",
    dataset_type="ADE20KDataset",
    splits={
        "train": Split("images/training", "annotations/training", 20210),
        "val": Split("images/validation", "annotations/validation", 2000),
    },
    image_suffix=".jpg",
    label_suffix=".png",
    num_classes=150,
    label_values=range(1, 151),
    void=frozenset({0}),
)

_CAMVID = Layout(
    name="camvid",
    title="CamVid",
    dataset_type="CamVidDataset",
    splits={
        "train": Split("img_dir/train", "ann_dir/train", 367),
        "val": Split("img_dir/val", "ann_dir/val", 101),
        "test": Split("img_dir/test", "ann_dir/test", 233),
    },
    image_suffix=".jpg",
    label_suffix=".png",
    num_classes=11,
    label_values=range(11),
    void=frozenset({IGNORE_INDEX}),
    size=(360, 480),
    other_sizes=True,
    classes=tuple(name for name, _ in CAMVID_CLASSES),
    palette=tuple(colour for _, colour in CAMVID_CLASSES),
)

# A few of the same images at half the size, for tries; it has no test split, its val split is scored.
_CAMVID_TINY = replace(
    _CAMVID,
    name="camvid_tiny",
    title="CamVid (24 training images)",
    splits={
        "train": Split("img_dir/train", "ann_dir/train", 24),
        "val": Split("img_dir/val", "ann_dir/val", 8),
    },
    size=(180, 240),
    other_sizes=False,
)


def _street(variant: Variant) -> Layout:
    return Layout(
        name=variant.name,
        title=f"SyntheticStreet ({variant.name.removeprefix('street_')})",
        dataset_type="".join(word.capitalize() for word in variant.name.split("_")) + "Dataset",
        splits={
            split: Split(f"img_dir/{split}", f"ann_dir/{split}", getattr(variant, split)) for split in ("train", "test")
        },
        image_suffix=".png",
        label_suffix=".png",
        num_classes=len(variant.classes),
        label_values=range(len(variant.classes)),
        void=frozenset({IGNORE_INDEX}),
        size=(64, 96),
        classes=variant.classes,
        palette=variant.palette,
        preparation=f"python -m pne.datasets.synthetic_street --variant {variant.name}",
        hash_images=True,
    )


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (_CITYSCAPES, _COCO_STUFF, _ADE20K, _CAMVID, _CAMVID_TINY, *map(_street, VARIANTS.values()))
}


def layout(name: str) -> Layout:
    """Return the layout of a data set.

    Parameters
    ----------
    name : str
        Its key (``cityscapes``) or the name of its mmsegmentation class (``CityscapesDataset``); a class that reads
        several data sets names the first of them.

    Raises
    ------
    UserError
        If there is none.
    """
    for known in LAYOUTS.values():
        if name in (known.name, known.dataset_type):
            return known
    raise UserError(f"data set {name!r} is not known; choose one of {', '.join(LAYOUTS)}")


def data_folder(root: Path | str) -> Path:
    """Return the data root as a path.

    Raises
    ------
    UserError
        If it is no folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(
            f"{root}: expected the folder of a data set, found none; name it with --data-root (of the workflow: "
            "the folder above it, with data_root=)"
        )
    return root
