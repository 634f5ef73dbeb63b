"""The stored arrays (``.npz``) that pass from the extraction to the figures: their fields, checked on both sides."""

import json
import zipfile
import zlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from pne.errors import UserError
from pne.files import write_text, written_aside
from pne.spec.reading import read_model

Archived = TypeVar("Archived", bound="Archive")


class Archive:
    """A dataclass of arrays whose leading axes agree, beside one dictionary ``about`` (JSON)."""

    SHAPES: ClassVar[dict[str, str]] = {}
    about: dict[str, Any]

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        for name, axes in self.SHAPES.items():
            array = getattr(self, name)
            if array is None:
                continue
            if array.ndim != len(axes):
                raise ValueError(f"{name} must have axes {axes}, got shape {array.shape}")
            for axis, size in zip(axes, array.shape, strict=True):
                fixed = int(axis) if axis.isdigit() else sizes.setdefault(axis, size)
                if size != fixed:
                    raise ValueError(f"{name} has {size} entries along {axis}, expected {fixed}")

    def write(self, path: Path | str) -> None:
        """Write the arrays, compressed, atomically and without a time stamp."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        about = np.array(json.dumps(arrays.pop("about"), sort_keys=True))
        with written_aside(path) as aside, aside.open("wb") as stream:
            np.savez_compressed(stream, about=about, **{k: v for k, v in arrays.items() if v is not None})

    @classmethod
    def read(cls: type[Archived], path: Path | str) -> Archived:
        """Read and check a file that `write` made.

        Raises
        ------
        UserError
            If the file is missing, damaged or holds other fields.
        """
        path = Path(path)
        try:
            with np.load(path) as stored:
                arrays = {name: stored[name] for name in stored.files}
            about = json.loads(str(arrays.pop("about")))
            return cls(about=about, **arrays)
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; `python -m pne.extract` makes it") from None
        except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(
                f"{path}: holds no {cls.__name__} ({error}); delete it and run the workflow again"
            ) from error


@dataclass
class Features(Archive):
    """A sample of pixels of one run: what the network holds of each, what it says and what is right.

    Positions count cells of the feature map, whose size for each pixel's image is ``grid``. Pixels belong to the
    sample drawn by label, to the one drawn from correctly predicted pixels, or to both.
    """

    SHAPES: ClassVar[dict[str, str]] = {
        "penultimate": "nf",
        "projection": "nd",
        "label": "n",
        "prediction": "n",
        "confidence": "n",
        "image": "n",
        "position": "n2",
        "grid": "n2",
        "by_label": "n",
        "by_correct": "n",
        "names": "i",
        "classes": "c",
        "palette": "c3",
    }

    about: dict[str, Any]
    penultimate: NDArray[np.float32]  # (n, F) input of the pixel classifier
    label: NDArray[np.int16]  # (n,)
    prediction: NDArray[np.int16]  # (n,)
    confidence: NDArray[np.float32]  # (n,) largest softmax probability
    image: NDArray[np.int32]  # (n,) index into names
    position: NDArray[np.int32]  # (n, 2) row and column
    grid: NDArray[np.int32]  # (n, 2) height and width of the feature map
    by_label: NDArray[np.bool_]  # (n,)
    by_correct: NDArray[np.bool_]  # (n,)
    names: NDArray[np.str_]  # (I,) names of the images
    classes: NDArray[np.str_]  # (C,)
    palette: NDArray[np.uint8]  # (C, 3)
    projection: NDArray[np.float32] | None = None  # (n, D) output of the projection, not normalised

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each pixel is predicted as its label says."""
        return self.prediction == self.label

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.integer]) -> "Features":
        """Keep some pixels, by mask or in the order of given rows."""
        kept = {
            name: value[chosen]
            for name, axes in self.SHAPES.items()
            if axes[0] == "n" and (value := getattr(self, name)) is not None
        }
        return Features(about=self.about, names=self.names, classes=self.classes, palette=self.palette, **kept)


@dataclass
class Predictions(Archive):
    """Some images of one run as a person sees them: the photograph, the label and the prediction, at equal size."""

    SHAPES: ClassVar[dict[str, str]] = {
        "image": "nhw3",
        "label": "nhw",
        "prediction": "nhw",
        "size": "n2",
        "index": "n",
        "names": "n",
        "classes": "c",
        "palette": "c3",
    }

    about: dict[str, Any]
    image: NDArray[np.uint8]  # (n, H, W, 3) RGB; smaller images are padded at the bottom and the right
    label: NDArray[np.uint8]  # (n, H, W), 255 is ignored
    prediction: NDArray[np.uint8]  # (n, H, W)
    size: NDArray[np.int32]  # (n, 2) height and width before padding
    index: NDArray[np.int32]  # (n,) position in the evaluated split
    names: NDArray[np.str_]
    classes: NDArray[np.str_]
    palette: NDArray[np.uint8]

    def panel(self, position: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
        """Return image (H, W, 3), label (H, W) and prediction (H, W) without padding."""
        height, width = self.size[position]
        return tuple(part[position, :height, :width] for part in (self.image, self.label, self.prediction))


@dataclass
class Pairs(Archive):
    """The pixels that a loss draws for one confusion in one image; positions are (row, column) of the feature map.

    All are empty, and the classes in ``about`` None, where the loss draws no pair in any image.
    """

    SHAPES: ClassVar[dict[str, str]] = {
        "image": "hw3",
        "label": "hw",
        "prediction": "uv",
        "extent": "2",
        "candidates": "s2",
        "anchors": "a2",
        "positives": "p2",
        "negatives": "m2",
        "classes": "c",
        "palette": "c3",
    }

    about: dict[str, Any]  # run, image, name, rule, true_class, predicted_class, ...
    image: NDArray[np.uint8]  # (H, W, 3) RGB
    label: NDArray[np.uint8]  # (H, W)
    prediction: NDArray[np.uint8]  # (h, w) of the cells of the feature map, as the loss sees it
    extent: NDArray[np.int32]  # (2,) height and width of the label with the padding that the network sees
    candidates: NDArray[np.int32]  # (S, 2) every cell of the confusion
    anchors: NDArray[np.int32]  # (A, 2) distinct cells
    positives: NDArray[np.int32]  # (P, 2) distinct cells
    negatives: NDArray[np.int32]  # (M, 2) distinct cells
    classes: NDArray[np.str_]
    palette: NDArray[np.uint8]

    def label_pixels(self, cells: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the pixels (row, column) of the label that the loss reads for cells, shape (n, 2)."""
        return cells.astype(np.int64) * self.extent // self.prediction.shape

    def true_classes(self, cells: NDArray[np.integer]) -> NDArray[np.uint8]:
        """Return the class that the loss reads for cells, shape (n,)."""
        return self.label[tuple(self.label_pixels(cells).T)]

    def predicted_classes(self, cells: NDArray[np.integer]) -> NDArray[np.uint8]:
        """Return the predicted class of cells, shape (n,)."""
        return self.prediction[tuple(cells.T)]

    def spread_prediction(self) -> NDArray[np.uint8]:
        """Paint the prediction at the size of the label, (H, W): each cell from its label pixel to the next one's."""
        cells = []
        for size, given, extent in zip(self.label.shape, self.prediction.shape, self.extent, strict=True):
            first = np.arange(given) * int(extent) // given
            cells.append(np.searchsorted(first, np.arange(size), side="right") - 1)
        return self.prediction[np.ix_(*cells)]


# What the figures ask to be shown, chosen by a stated rule and stored as JSON.


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ChosenImage(_Strict):
    """An image and what made the rule choose it."""

    index: int = Field(ge=0, description="Position in the evaluated split.")
    name: str
    reason: str


class ImageSelection(_Strict):
    """Images to show of several runs."""

    kind: Literal["images"] = "images"
    rule: str = Field(description="The rule, as a sentence for the caption.")
    images: list[ChosenImage] = Field(min_length=1)


class Confusion(_Strict):
    """One class mistaken for another in one image."""

    image: ChosenImage
    true_class: int = Field(ge=0)
    predicted_class: int = Field(ge=0)
    pixels: int = Field(ge=1, description="Mistaken pixels in the image, at full resolution.")


class ConfusionSelection(_Strict):
    """Confusions in the order in which they are to be shown; the first that a loss draws pairs of is taken."""

    kind: Literal["confusions"] = "confusions"
    rule: str
    confusions: list[Confusion]


Selection = ImageSelection | ConfusionSelection


def write_selection(path: Path, selection: Selection) -> None:
    """Write a selection as JSON, atomically."""
    write_text(path, selection.model_dump_json(indent=1) + "\n")


def read_selection(path: Path, kind: type[Selection]) -> Selection:
    """Read a selection of one kind.

    Raises
    ------
    UserError
        If the file is missing or holds something else.
    """
    remedy = f"the file holds no {kind.__name__}: delete it and run the workflow again"
    missing = "no such selection; `python -m analysis.figures select` makes it"
    return read_model(path, kind, missing=missing, remedy=remedy)
