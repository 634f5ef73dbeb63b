"""The things that stand and move on a street: plants, poles, signs, vehicles and people."""

import numpy as np
from numpy.random import RandomState

from pne.datasets.synthetic_street.backdrop import GREENS, STEEL
from pne.datasets.synthetic_street.canvas import Camera, Canvas, jitter, pick, value_noise
from pne.datasets.synthetic_street.variants import Part

PAINTS = ((70, 72, 76), (150, 152, 156), (38, 38, 42), (200, 200, 198), (120, 40, 36), (44, 58, 96), (92, 96, 88))
CLOTHES = ((40, 40, 50), (92, 84, 76), (150, 46, 44), (50, 70, 130), (176, 168, 150), (160, 120, 60))
SIGNS = ((190, 44, 40), (40, 70, 160), (216, 196, 60), (196, 196, 194), (190, 44, 40))
SKIN = ((186, 146, 122), (128, 92, 74), (84, 60, 48))


def draw_foliage(canvas: Canvas, camera: Camera, rng: RandomState, x: float, z: float, part: Part, size: float) -> None:
    """Draw a tree with its trunk, or a bush; ``size`` is the height in metres."""
    s = camera.scale(z)
    column, foot = camera.column(x, z), camera.row(0, z)
    green = pick(rng, GREENS, 16)
    is_tree = part == Part.TREE
    if is_tree:
        thickness = rng.uniform(0.12, 0.3)
        trunk = jitter(rng, (78, 68, 58), 14)
        canvas.rectangle(foot - 0.5 * s * size, foot, column - s * thickness, column + s * thickness, part, trunk, z)
    middle = foot - s * size * (0.66 if is_tree else 0.45)
    tall, wide = s * size * (0.34 if is_tree else 0.5), s * size * rng.uniform(0.24, 0.42) * (1 if is_tree else 1.9)
    window = canvas.window(
        middle - 1.2 * tall, min(middle + 1.2 * tall, foot), column - 1.2 * wide, column + 1.2 * wide
    )
    if window is None:
        return
    rows, columns = canvas.grid(window)
    shape = (window[0].stop - window[0].start, window[1].stop - window[1].start)
    leaves = value_noise(rng, *shape, 3) + 0.8 * value_noise(rng, *shape, 8)
    v, u = (rows - middle) / tall, (columns - column) / wide
    crown = (v * v + u * u < 1 + 0.28 * leaves) & (rows < foot)
    canvas.paint(window, crown, part, green + (14 * leaves - 10 * v)[..., None], z)


def draw_pole(canvas: Canvas, camera: Camera, rng: RandomState, x: float, z: float, with_sign: bool) -> None:
    """Draw a lamp post, or a lower post that carries a sign."""
    s = camera.scale(z)
    column, foot = camera.column(x, z), camera.row(0, z)
    height = rng.uniform(2.4, 3.4) if with_sign else rng.uniform(4, 8)
    colour, radius = pick(rng, STEEL, 18), rng.uniform(0.05, 0.11) * s
    top = foot - s * height
    canvas.rectangle(top, foot, column - radius, column + radius, Part.POLE, colour, z)
    if not with_sign:
        if rng.uniform() < 0.6:  # the arm of the lamp reaches over the road
            left, right = sorted((column, column - (1 if x > 0 else -1) * s * 1.3))
            canvas.rectangle(top, top + max(0.14 * s, 1), left, right, Part.POLE, colour, z)
        return
    face, rim = pick(rng, SIGNS, 20), pick(rng, SIGNS, 20)
    half = s * rng.uniform(0.32, 0.55)
    if rng.uniform() < 0.5:
        canvas.ellipse(top, column, half, half, Part.SIGN, rim, z)
        canvas.ellipse(top, column, 0.6 * half, 0.6 * half, Part.SIGN, face, z)
    else:
        canvas.rectangle(top - half, top + half, column - half, column + half, Part.SIGN, rim, z)
        canvas.rectangle(top - half / 2, top + half / 2, column - half / 1.4, column + half / 1.4, Part.SIGN, face, z)


def draw_vehicle(canvas: Canvas, camera: Camera, rng: RandomState, x: float, z: float, is_bus: bool) -> None:
    """Draw a car, or a bus or van, seen from behind or ahead, with its shadow."""
    s = camera.scale(z)
    column, foot = camera.column(x, z), camera.row(0, z)
    part = Part.BUS if is_bus else Part.CAR
    half = s * (rng.uniform(1.0, 1.25) if is_bus else rng.uniform(0.8, 0.95))
    tall = s * (rng.uniform(2.1, 3.1) if is_bus else rng.uniform(1.35, 1.6))
    paint, glass = pick(rng, PAINTS, 15), jitter(rng, (62, 68, 76), 18)
    if (
        window := canvas.window(foot - 0.1 * s, foot + 0.18 * s, column - 1.15 * half, column + 1.15 * half)
    ) is not None:
        canvas.shade(window, np.True_, 0.6)
    for wheel in (-0.72, 0.72):
        middle = column + wheel * half
        canvas.rectangle(
            foot - 0.36 * s, foot, middle - 0.13 * s, middle + 0.13 * s, part, jitter(rng, (32, 32, 34), 6), z
        )
    waist = foot - (0.52 if is_bus else 0.58) * tall
    canvas.rectangle(waist, foot - 0.16 * s, column - half, column + half, part, paint, z)
    roof = foot - tall
    if is_bus:
        canvas.rectangle(roof, waist, column - half, column + half, part, paint * 1.05, z)
        canvas.rectangle(roof + 0.12 * tall, waist, column - 0.85 * half, column + 0.85 * half, part, glass, z)
    elif (window := canvas.window(roof, waist, column - half, column + half)) is not None:
        rows, columns = canvas.grid(window)
        inset = 0.72 + 0.26 * (rows - roof) / (waist - roof)  # the cabin narrows towards the roof
        inside = (rows >= roof) & (rows < waist)
        canvas.paint(window, inside & (np.abs(columns - column) < inset * half), part, paint * 0.95, z)
        pane = inside & (rows > roof + 0.1 * tall) & (np.abs(columns - column) < (inset - 0.14) * half)
        canvas.paint(window, pane, part, glass, z)
    lights = np.array([168.0, 52, 44]) if rng.uniform() < 0.6 else np.array([216.0, 214, 200])
    for lamp in (-0.8, 0.8):
        row, middle = waist + 0.3 * s, column + lamp * half
        canvas.rectangle(row - 0.07 * s, row + 0.09 * s, middle - 0.12 * s, middle + 0.12 * s, part, lights, z)


def _person(canvas: Canvas, rng: RandomState, column: float, foot: float, s: float, z: float, part: Part) -> None:
    top, trousers = pick(rng, CLOTHES, 18), pick(rng, CLOTHES, 12)
    size, build = s * rng.uniform(1.5, 1.85), s * rng.uniform(0.18, 0.27)
    hip, shoulder = foot - 0.48 * size, foot - 0.84 * size
    stride = rng.uniform(0.15, 0.8)
    for leg in (-stride, stride):
        canvas.rectangle(hip, foot, column + leg * build - 0.08 * s, column + leg * build + 0.08 * s, part, trousers, z)
    canvas.rectangle(shoulder, hip, column - build, column + build, part, top, z)
    canvas.ellipse(foot - 0.92 * size, column, 0.08 * size, 0.06 * size, part, pick(rng, SKIN, 15), z)


def draw_pedestrian(canvas: Canvas, camera: Camera, rng: RandomState, x: float, z: float) -> None:
    """Draw a person on foot."""
    _person(canvas, rng, camera.column(x, z), camera.row(0, z), camera.scale(z), z, Part.PEDESTRIAN)


def draw_bicyclist(canvas: Canvas, camera: Camera, rng: RandomState, x: float, z: float) -> None:
    """Draw a person on a bicycle, from the side or from behind; rider and bicycle are one class."""
    s, column, foot = camera.scale(z), camera.column(x, z), camera.row(0, z)
    tyre, frame = jitter(rng, (40, 40, 42), 8), pick(rng, PAINTS, 20)
    _person(canvas, rng, column, foot - 0.28 * s, s * 0.9, z, Part.BICYCLIST)
    if rng.uniform() < 0.6:
        for wheel in (-0.52, 0.52):
            window = canvas.window(foot - 0.7 * s, foot, column + (wheel - 0.35) * s, column + (wheel + 0.35) * s)
            if window is None:
                continue
            rows, columns = canvas.grid(window)
            v, u = (rows - foot + 0.34 * s) / s, (columns - column - wheel * s) / s
            distance = np.sqrt(v * v + u * u)
            canvas.paint(window, (distance < 0.34) & (distance > 0.2), Part.BICYCLIST, tyre, z)
        canvas.rectangle(foot - 0.62 * s, foot - 0.5 * s, column - 0.5 * s, column + 0.5 * s, Part.BICYCLIST, frame, z)
    else:
        canvas.rectangle(foot - 0.68 * s, foot, column - 0.06 * s, column + 0.06 * s, Part.BICYCLIST, tyre, z)
        canvas.rectangle(foot - s, foot - 0.92 * s, column - 0.3 * s, column + 0.3 * s, Part.BICYCLIST, frame, z)
