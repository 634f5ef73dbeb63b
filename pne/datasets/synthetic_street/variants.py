"""The variants of SyntheticStreet: which parts of a scene they name, and how their streets are laid out."""

from dataclasses import dataclass
from enum import IntEnum

from pne.errors import UserError

IGNORE_INDEX = 255
SPLITS = ("train", "test")


class Part(IntEnum):
    """What the drawing distinguishes; a variant merges parts into its classes."""

    SKY = 0
    CLOUD = 1
    BUILDING = 2
    HOUSE = 3
    WALL = 4
    POLE = 5
    ROAD = 6
    PAVEMENT = 7
    GRASS = 8
    TREE = 9
    BUSH = 10
    SIGN = 11
    FENCE = 12
    CAR = 13
    BUS = 14
    PEDESTRIAN = 15
    BICYCLIST = 16


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


# Label colours of the classes that CamVid knows are CamVid's.
_COLOURS = {
    "sky": (128, 128, 128),
    "cloud": (200, 200, 220),
    "building": (128, 0, 0),
    "house": (200, 60, 20),
    "wall": (102, 102, 156),
    "pole": (192, 192, 128),
    "road": (128, 64, 128),
    "pavement": (60, 40, 222),
    "grass": (152, 251, 152),
    "tree": (128, 128, 0),
    "bush": (60, 160, 40),
    "sign": (192, 128, 128),
    "fence": (64, 64, 128),
    "car": (64, 0, 128),
    "bus": (0, 60, 100),
    "pedestrian": (64, 64, 0),
    "bicyclist": (0, 128, 192),
}

# The class that takes a part which a variant does not name.
_MERGES = {
    Part.CLOUD: "sky",
    Part.HOUSE: "building",
    Part.WALL: "fence",
    Part.GRASS: "pavement",
    Part.BUSH: "tree",
    Part.BUS: "car",
}


def _variant(name: str, classes: str, **statistics: object) -> Variant:
    names = tuple(classes.split())
    parts = {}
    for part in Part:
        own = part.name.lower()
        parts[part] = names.index(own if own in names else _MERGES[part])
    return Variant(name, names, tuple(_COLOURS[c] for c in names), parts, **statistics)  # type: ignore[arg-type]


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        _variant(
            "street_city",
            "sky building pole road pavement tree sign fence car pedestrian bicyclist",
            stream=0,
        ),
        _variant(
            "street_stuff",
            "sky cloud building pole road pavement grass tree bush sign fence wall car bus pedestrian bicyclist",
            stream=1,
            gaps=0.55,
            greenery=0.75,
            low_walls=0.9,
            traffic=3.5,
            people=3.5,
            riders=0.7,
            buses=0.3,
            verge=0.7,
            half_road=(2.3, 5.5),
            camera_height=(1.6, 2.8),
        ),
        _variant(
            "street_scene",
            "sky building house pole road pavement grass tree sign fence car bus pedestrian bicyclist",
            stream=2,
            roofs=0.6,
            gaps=0.45,
            greenery=0.8,
            low_walls=0.6,
            traffic=2.5,
            people=4.0,
            riders=0.8,
            furniture=4.5,
            buses=0.3,
            verge=0.75,
            half_road=(2.2, 4.5),
            camera_height=(1.7, 2.4),
        ),
    )
}


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
