"""A camera on a street and a canvas that is painted from far to near.

Only additions, multiplications, divisions, square roots and comparisons are used, which IEEE 754 rounds correctly:
a scene comes out the same on every platform.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState

from pne.datasets.synthetic_street import Part


@dataclass(frozen=True)
class Camera:
    """Pinhole camera that looks along the street.

    World coordinates in metres: ``x`` to the right, ``y`` up from the ground, ``z`` ahead. Pixels: row down, column
    to the right, centres at half integers.

    Attributes
    ----------
    horizon, centre : float
        Row of the horizon and column of the vanishing point, in pixels.
    focal : float
        Focal length in pixels.
    height : float
        Height of the camera above the ground in metres.
    """

    horizon: float
    centre: float
    focal: float
    height: float

    def scale(self, z: float) -> float:
        """Pixels per metre at distance ``z``."""
        return self.focal / z

    def row(self, y: float, z: float) -> float:
        """Row of height ``y`` at distance ``z``."""
        return self.horizon + (self.height - y) * self.focal / z

    def column(self, x: float, z: float) -> float:
        """Column of lateral position ``x`` at distance ``z``."""
        return self.centre + x * self.focal / z


class Canvas:
    """Colours, parts and distances of a picture in the making.

    Attributes
    ----------
    colour : ndarray, shape (H, W, 3), float64
        RGB in [0, 255].
    part : ndarray, shape (H, W), uint8
        The `Part` seen in each pixel.
    distance : ndarray, shape (H, W), float64
        Metres from the camera.
    """

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width
        self.colour = np.zeros((height, width, 3))
        self.part = np.zeros((height, width), np.uint8)
        self.distance = np.full((height, width), 1e3)
        self._rows = np.arange(height)[:, None] + 0.5
        self._columns = np.arange(width)[None, :] + 0.5

    def window(self, top: float, bottom: float, left: float, right: float) -> tuple[slice, slice] | None:
        """Slices of the pixels that a rectangle may touch, or None if it lies outside of the canvas."""
        r0, r1 = max(0, int(top) - 1), min(self.height, int(bottom) + 2)
        c0, c1 = max(0, int(left) - 1), min(self.width, int(right) + 2)
        return (slice(r0, r1), slice(c0, c1)) if r0 < r1 and c0 < c1 else None

    def grid(self, window: tuple[slice, slice]) -> tuple[np.ndarray, np.ndarray]:
        """Pixel centres of a window: rows (h, 1) and columns (1, w)."""
        return self._rows[window[0]], self._columns[:, window[1]]

    def paint(
        self,
        window: tuple[slice, slice],
        mask: np.ndarray,
        part: Part | None,
        colour: np.ndarray,
        distance: float | np.ndarray | None = None,
    ) -> None:
        """Paint the masked pixels of a window.

        Parameters
        ----------
        window : pair of slices
            The pixels meant.
        mask : ndarray of bool, broadcastable to the window
            Which of them to paint.
        part : Part or None
            What is painted; None changes the colour alone (shadows, lights).
        colour : ndarray, shape (3,) or (h, w, 3)
            RGB in [0, 255].
        distance : float or ndarray, optional
            Metres from the camera; None keeps what is there.
        """
        mask = np.broadcast_to(mask, self.part[window].shape)
        np.copyto(self.colour[window], colour, where=mask[..., None])
        if part is not None:
            np.copyto(self.part[window], np.uint8(part), where=mask)
        if distance is not None:
            np.copyto(self.distance[window], distance, where=mask)

    def shade(self, window: tuple[slice, slice], mask: np.ndarray, factor: float) -> None:
        """Multiply the masked colours of a window by ``factor``."""
        view = self.colour[window]
        view[np.broadcast_to(mask, view.shape[:2])] *= factor

    def rectangle(
        self, top: float, bottom: float, left: float, right: float, part: Part | None, colour: np.ndarray, z: float
    ) -> None:
        """Paint an upright rectangle at distance ``z``; at least one pixel wide, so that thin things stay visible."""
        if right - left < 1:
            left, right = (left + right - 1) / 2, (left + right + 1) / 2
        if (window := self.window(top, bottom, left, right)) is None:
            return
        rows, columns = self.grid(window)
        self.paint(window, (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right), part, colour, z)

    def ellipse(
        self, row: float, column: float, height: float, width: float, part: Part | None, colour: np.ndarray, z: float
    ) -> None:
        """Paint an ellipse with half axes ``height`` and ``width`` at distance ``z``."""
        height, width = max(height, 0.6), max(width, 0.6)
        if (window := self.window(row - height, row + height, column - width, column + width)) is None:
            return
        rows, columns = self.grid(window)
        v, u = (rows - row) / height, (columns - column) / width
        self.paint(window, v * v + u * u <= 1, part, colour, z)


def value_noise(rng: RandomState, height: int, width: int, cell: int) -> np.ndarray:
    """Smooth random field: uniform values in [-1, 1] on a grid of ``cell`` pixels, bilinear between.

    Returns
    -------
    ndarray, shape (height, width), float64
    """
    grid = rng.uniform(-1, 1, (height // cell + 2, width // cell + 2))
    r, c = np.arange(height), np.arange(width)
    r0, c0 = r // cell, c // cell
    v, u = ((r % cell) / cell)[:, None], ((c % cell) / cell)[None, :]
    top = grid[r0][:, c0] * (1 - u) + grid[r0][:, c0 + 1] * u
    bottom = grid[r0 + 1][:, c0] * (1 - u) + grid[r0 + 1][:, c0 + 1] * u
    return top * (1 - v) + bottom * v


def jitter(rng: RandomState, colour: Sequence[float], brightness: float, hue: float = 8) -> np.ndarray:
    """Return ``colour`` made brighter or darker by up to ``brightness`` and tinted by up to ``hue``."""
    return np.asarray(colour) + rng.uniform(-brightness, brightness) + rng.uniform(-hue, hue, 3)


def pick(rng: RandomState, colours: Sequence[Sequence[float]], brightness: float = 15) -> np.ndarray:
    """Return one of ``colours``, jittered."""
    return jitter(rng, colours[rng.randint(len(colours))], brightness)
