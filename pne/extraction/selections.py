"""What the figures ask to be shown, chosen by a stated rule and stored as JSON."""

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pne.errors import UserError
from pne.files import write_text


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
    try:
        return kind.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"{path}: no such selection; `python -m analysis.figures select` makes it") from None
    except (ValueError, ValidationError) as error:
        raise UserError(f"{path}: holds no {kind.__name__} ({error}); delete it and run the workflow again") from error
