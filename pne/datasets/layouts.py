"""Where each data set keeps its files, what its labels mean, and how many images the official splits have.

The one home of these facts; nothing here imports torch. Class names of data sets that mmsegmentation ships stay there.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pne.datasets.synthetic_street import IGNORE_INDEX, VARIANTS, Variant
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
    label_values : range
        Label values of the classes on disk.
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
    label_values: range
    size: tuple[int, int] | None = None
    classes: tuple[str, ...] = ()
    palette: tuple[tuple[int, int, int], ...] = ()
    other_sizes: bool = False
    preparation: str = ""
    hash_images: bool = False

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.label_values)

    @property
    def void(self) -> int:
        """Label value on disk that is ignored: 0 where the classes begin at 1."""
        return IGNORE_INDEX if 0 in self.label_values else 0

    @property
    def metainfo(self) -> dict[str, Any]:
        """Class names and palette in the form of mmsegmentation's ``METAINFO``."""
        return {"classes": self.classes, "palette": [list(colour) for colour in self.palette]}


def read_layout(name: str, facts: dict[str, Any]) -> Layout:
    """Make a layout of an entry of ``layouts.yaml``."""
    splits = {split: Split(*values) for split, values in facts.pop("splits").items()}
    first, last = facts.pop("label_values")
    if "classes" in facts:
        palette = facts["palette"]  # of its own, or that of a drawn data set
        colours = VARIANTS[palette].palette if isinstance(palette, str) else tuple(map(tuple, palette))
        facts |= {"classes": tuple(facts["classes"].split()), "palette": colours}
    if "size" in facts:
        facts["size"] = tuple(facts["size"])
    return Layout(name=name, splits=splits, label_values=range(first, last + 1), **facts)


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
        label_values=range(len(variant.classes)),
        size=(64, 96),
        classes=variant.classes,
        palette=variant.palette,
        preparation=f"python -m pne.datasets.synthetic_street --variant {variant.name}",
        hash_images=True,
    )


LAYOUTS: dict[str, Layout] = {
    name: read_layout(name, facts)
    for name, facts in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).items()
} | {name: _street(variant) for name, variant in VARIANTS.items()}


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
