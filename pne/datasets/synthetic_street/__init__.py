"""SyntheticStreet: procedurally drawn street scenes, 64 x 96 pixels, that stand for real data sets in small runs.

The scenes have the classes of CamVid and what makes them hard: perspective, thin poles, occlusion, changing light,
colours and textures shared between classes, rare classes, and pixels to ignore. Everything follows from a seed. A
variant says which parts of a scene are classes, and how the streets are laid out.

>>> from pne.datasets.synthetic_street import VARIANTS
>>> from pne.datasets.synthetic_street.scene import draw_scene
>>> image, label = draw_scene(VARIANTS["street_city"], "train", 0)
>>> image.shape, label.shape, VARIANTS["street_city"].classes[:3]
((64, 96, 3), (64, 96), ('sky', 'building', 'pole'))
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import yaml

from pne.errors import UserError

IGNORE_INDEX = 255
SPLITS = ("train", "test")

_FACTS = yaml.safe_load(Path(__file__).with_name("variants.yaml").read_text(encoding="utf-8"))
COLOURS = {name: tuple(colour) for name, colour in _FACTS["colours"].items()}
SHADES: dict[str, list[list[int]]] = _FACTS["shades"]

Part = IntEnum("Part", [name.upper() for name in COLOURS], start=0)
"""What the drawing distinguishes; a variant merges parts into its classes."""


@dataclass(frozen=True)
class Variant:
    """One data set: its classes and the statistics of its streets.

    Attributes
    ----------
    name : str
        Name of the data set.
    classes : tuple of str
        Class names in the order of the label values.
    palette : tuple of (int, int, int)
        RGB colour of each class in label files and pictures.
    parts : dict of Part to int
        Label value of every part.
    stream : int
        Separates the random streams of the variants.
    train, test : int
        Number of images of each split.
    roofs, gaps, greenery, low_walls : float
        Probabilities in [0, 1]: a building is a pitched-roof house; a gap follows a building; vegetation instead of
        an open view behind a gap; a fence or wall stands at the inner edge of a gap.
    traffic, people, riders, furniture : float
        Expected numbers per scene of motor vehicles, pedestrians, bicyclists, and poles with or without a sign.
    buses : float
        Probability that a motor vehicle is a bus or van.
    verge : float
        Probability that a strip of grass lies between pavement and buildings.
    half_road : (float, float)
        Range of half the road's width in metres.
    camera_height : (float, float)
        Range of the camera's height in metres.
    """

    name: str
    classes: tuple[str, ...]
    palette: tuple[tuple[int, int, int], ...]
    parts: dict[Part, int]
    stream: int
    train: int = 200
    test: int = 60
    roofs: float = 0.15
    gaps: float = 0.35
    greenery: float = 0.9
    low_walls: float = 0.4
    traffic: float = 3.5
    people: float = 3.0
    riders: float = 0.8
    furniture: float = 4.0
    buses: float = 0.15
    verge: float = 0.2
    half_road: tuple[float, float] = (2.8, 4.6)
    camera_height: tuple[float, float] = (1.6, 2.2)


def _variant(name: str, facts: dict[str, Any]) -> Variant:
    names = tuple(facts.pop("classes").split())
    merges, statistics = _FACTS["merges"], {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items()}
    parts = {part: names.index(own if own in names else merges[own]) for part, own in zip(Part, COLOURS, strict=True)}
    return Variant(name, names, tuple(COLOURS[c] for c in names), parts, **statistics)


VARIANTS: dict[str, Variant] = {name: _variant(name, facts) for name, facts in _FACTS["variants"].items()}


def variant(name: str) -> Variant:
    """Return the variant of this name.

    Raises
    ------
    UserError
        If there is none.
    """
    if name not in VARIANTS:
        raise UserError(f"variant {name!r} of SyntheticStreet does not exist; choose one of {', '.join(VARIANTS)}")
    return VARIANTS[name]
