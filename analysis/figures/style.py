"""One style for all figures: sizes of a two-column paper, colours that colour-blind readers tell apart, saving."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pne.files import written_aside

MILLIMETRE = 1 / 25.4  # in inches
COLUMN = 88 * MILLIMETRE  # width of one column
PAGE = 180 * MILLIMETRE  # width of both columns
FONT_SIZE = 8  # pt; the smallest text is 7

# Okabe & Ito's colours, which readers with any common colour blindness tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#7F7F7F"
SERIES = (BLACK, BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)  # in order of the rows of a table
DASHES = ("-", "-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 1, 1, 1, 1, 1)), "-")
GAIN, LOSS = BLUE, VERMILION
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
IGNORED = (255, 255, 255)

_SETTINGS: dict[str, Any] = {
    "font.size": FONT_SIZE,
    "font.family": "DejaVu Sans",
    "axes.titlesize": FONT_SIZE,
    "axes.labelsize": FONT_SIZE,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.grid": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # text stays text in the PDF
    "svg.hashsalt": "pne",
    "figure.constrained_layout.use": True,
}


@contextmanager
def paper_style() -> Iterator[None]:
    """Use the style within the block, without a display."""
    with mpl.rc_context():
        mpl.use("Agg", force=False)
        mpl.rcParams.update(_SETTINGS)
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
