"""One style for all figures: sizes of a two-column paper, colours that colour-blind readers tell apart, saving."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pne.files import written_aside

MILLIMETRE = 1 / 25.4  # in inches
PAGE = 180 * MILLIMETRE  # width of both columns
FONT_SIZE = 8  # pt, as in paper.mplstyle

# Okabe & Ito's colours, which readers with any common colour blindness tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#7F7F7F"
SERIES = (BLACK, BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)  # in order of the rows of a table
DASHES = ("-", "-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 1, 1, 1, 1, 1)), "-")
GAIN, LOSS = BLUE, VERMILION
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
IGNORED = (255, 255, 255)


@contextmanager
def paper_style() -> Iterator[None]:
    """Use the style within the block, without a display or anything of a reader's own matplotlibrc."""
    with mpl.style.context(Path(__file__).with_name("paper.mplstyle"), after_reset=True):
        mpl.use("Agg", force=False)
        yield


def new_figure(width: float, height: float, images: bool = False) -> Figure:
    """Make an empty figure of so many inches, known to no window; ``images``: a grid of images of one shape."""
    return Figure(figsize=(width, height), layout="compressed" if images else "constrained")


def save(figure: Figure, paths: Sequence[Path]) -> None:
    """Write a figure once per path (PDF, PNG), atomically, cut to what is drawn; same data, same bytes."""
    for path in paths:
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else {"Software": None}
        with written_aside(path) as aside:
            figure.savefig(aside, format=path.suffix[1:], metadata=metadata, bbox_inches="tight", pad_inches=0.03)


def paint(labels: NDArray[np.integer], palette: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn class numbers (H, W) into colours (H, W, 3); numbers that are no class become white."""
    colours = np.concatenate([palette, np.array([IGNORED], np.uint8)])
    return colours[np.where((labels >= 0) & (labels < len(palette)), labels, len(palette))]


def visible(colour: NDArray[np.floating]) -> NDArray[np.floating]:
    """Darken a colour (3,) in 0 to 1 as far as thin lines of it need to be seen on white."""
    brightness = float(np.asarray(colour)[:3] @ (0.299, 0.587, 0.114))
    return np.asarray(colour)[:3] * min(1, 0.7 / max(brightness, 1e-6))
