"""What passes between figures and extraction, checked on both sides: selections (JSON) and stored arrays (``.npz``)."""

import json
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pne.errors import UserError
from pne.files import sha256, write_text, written_aside
from pne.results import TrainResult
from pne.spec.reading import read_model
from pne.spec.schema import Strict

Archived = TypeVar("Archived", bound="Archive")


@dataclass
class Archive:
    """Arrays beside one dictionary ``about`` (JSON).

    The annotation of an array names its axes: those of one letter are equally long, a digit is a length itself.
    """

    about: dict[str, Any]

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        for name, names, array in self._arrays():
            if array.ndim != len(names):
                raise ValueError(f"{name} must have axes {names}, got shape {array.shape}")
            for axis, size in zip(names, array.shape, strict=True):
                fixed = int(axis) if axis.isdigit() else sizes.setdefault(axis, size)
                if size != fixed:
                    raise ValueError(f"{name} has {size} entries along {axis}, expected {fixed}")

    def _arrays(self) -> Iterator[tuple[str, str, NDArray[Any]]]:
        """Yield name, axes and content of each array that there is."""
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            if get_origin(hint) is Annotated and (array := getattr(self, name)) is not None:
                yield name, hint.__metadata__[0], array

    def write(self, path: Path | str) -> None:
        """Write the arrays, compressed, atomically and without a time stamp."""
        about = np.array(json.dumps(self.about, sort_keys=True))
        with written_aside(path) as aside, aside.open("wb") as stream:
            np.savez_compressed(stream, about=about, **{name: array for name, _, array in self._arrays()})

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


def is_extracted(path: Path, trained: TrainResult | None, selection: Path | None = None) -> bool:
    """Whether a file of ``python -m pne.extract`` says that it is of the weights of a training, and of a selection."""
    try:
        with np.load(path) as stored:
            about = json.loads(str(stored["about"]))
        of = (about["run"], about["weights_sha256"], about.get("selection_sha256"))
        return trained is not None and of == (trained.run, trained.weights_sha256, selection and sha256(selection))
    except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        return False


@dataclass
class Features(Archive):
    """A sample of pixels of one run: what the network holds of each, what it says and what is right.

    Positions count cells of the feature map, whose size for each pixel's image is ``grid``. Pixels belong to the
    sample drawn by label, to the one drawn from correctly predicted pixels, or to both.
    """

    penultimate: Annotated[NDArray[np.float32], "nf"]  # input of the pixel classifier
    label: Annotated[NDArray[np.int16], "n"]
    prediction: Annotated[NDArray[np.int16], "n"]
    confidence: Annotated[NDArray[np.float32], "n"]  # largest softmax probability
    image: Annotated[NDArray[np.int32], "n"]  # index into names
    position: Annotated[NDArray[np.int32], "n2"]  # row and column
    grid: Annotated[NDArray[np.int32], "n2"]  # height and width of the feature map
    by_label: Annotated[NDArray[np.bool_], "n"]
    by_correct: Annotated[NDArray[np.bool_], "n"]
    names: Annotated[NDArray[np.str_], "i"]  # names of the images
    classes: Annotated[NDArray[np.str_], "c"]
    palette: Annotated[NDArray[np.uint8], "c3"]
    projection: Annotated[NDArray[np.float32] | None, "nd"] = None  # output of the projection, not normalised

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each pixel is predicted as its label says."""
        return self.prediction == self.label

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.integer]) -> "Features":
        """Keep some pixels, by mask or in the order of given rows."""
        return replace(self, **{name: array[chosen] for name, names, array in self._arrays() if names[0] == "n"})


@dataclass
class Predictions(Archive):
    """Some images of one run as a person sees them: the photograph, the label and the prediction, at equal size."""

    image: Annotated[NDArray[np.uint8], "nhw3"]  # RGB; smaller images are padded at the bottom and the right
    label: Annotated[NDArray[np.uint8], "nhw"]  # 255 is ignored
    prediction: Annotated[NDArray[np.uint8], "nhw"]
    size: Annotated[NDArray[np.int32], "n2"]  # height and width before padding
    index: Annotated[NDArray[np.int32], "n"]  # position in the evaluated split
    names: Annotated[NDArray[np.str_], "n"]
    classes: Annotated[NDArray[np.str_], "c"]
    palette: Annotated[NDArray[np.uint8], "c3"]

    def panel(self, position: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
        """Return image (H, W, 3), label (H, W) and prediction (H, W) without padding."""
        height, width = self.size[position]
        return tuple(part[position, :height, :width] for part in (self.image, self.label, self.prediction))


@dataclass
class Pairs(Archive):
    """The pixels that a loss draws for one confusion in one image; positions are (row, column) of the feature map.

    All are empty, and the classes in ``about`` None, where the loss draws no pair in any image. ``about`` names
    run, image and classes, and says how these were chosen.
    """

    image: Annotated[NDArray[np.uint8], "hw3"]  # RGB
    label: Annotated[NDArray[np.uint8], "hw"]
    prediction: Annotated[NDArray[np.uint8], "uv"]  # of the cells of the feature map, as the loss sees it
    extent: Annotated[NDArray[np.int32], "2"]  # height and width of the label with the padding that the network sees
    candidates: Annotated[NDArray[np.int32], "s2"]  # every cell of the confusion
    anchors: Annotated[NDArray[np.int32], "a2"]  # distinct cells
    positives: Annotated[NDArray[np.int32], "p2"]  # distinct cells
    negatives: Annotated[NDArray[np.int32], "m2"]  # distinct cells
    classes: Annotated[NDArray[np.str_], "c"]
    palette: Annotated[NDArray[np.uint8], "c3"]

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


class ChosenImage(Strict):
    """An image and what made the rule choose it."""

    index: int = Field(ge=0, description="Position in the evaluated split.")
    name: str
    reason: str


class ImageSelection(Strict):
    """Images to show of several runs."""

    kind: Literal["images"] = "images"
    rule: str = Field(description="The rule, as a sentence for the caption.")
    images: list[ChosenImage] = Field(min_length=1)


class Confusion(Strict):
    """One class mistaken for another in one image."""

    image: ChosenImage
    true_class: int = Field(ge=0)
    predicted_class: int = Field(ge=0)
    pixels: int = Field(ge=1, description="Mistaken pixels in the image, at full resolution.")


class ConfusionSelection(Strict):
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
