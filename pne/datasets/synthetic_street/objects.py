"""What a street is made of: sky, ground, skyline, buildings, fences and walls, plants, poles, vehicles and people."""

import numpy as np
from numpy.random import RandomState

from pne.datasets.synthetic_street import SHADES, Part, Variant
from pne.datasets.synthetic_street.canvas import Camera, Canvas, jitter, pick, value_noise

FACADES, ROOFS, GREENS, STEEL = (SHADES[name] for name in ("facades", "roofs", "greens", "steel"))
PAINTS, CLOTHES, SIGNS, SKIN = (SHADES[name] for name in ("paints", "clothes", "signs", "skin"))


def draw_sky(canvas: Canvas, rng: RandomState, horizon: float) -> None:
    """Fill the canvas with a sky, blue to overcast, brighter towards the horizon, and with clouds."""
    cloudiness = rng.uniform()
    zenith = jitter(rng, (110, 140, 185), 20) * (1 - cloudiness) + jitter(rng, (158, 166, 178), 20) * cloudiness
    low = zenith * 0.5 + 0.5 * np.array([192, 200, 208])
    everything = (slice(0, canvas.height), slice(0, canvas.width))
    rows, _ = canvas.grid(everything)
    t = np.clip(rows / max(horizon, 1), 0, 1)[..., None]
    canvas.paint(everything, np.True_, Part.SKY, zenith * (1 - t) + low * t)
    field = value_noise(rng, canvas.height, canvas.width, 40) + 0.6 * value_noise(rng, canvas.height, canvas.width, 14)
    clouds = field > 0.5 - 0.7 * cloudiness
    bright = jitter(rng, (222, 222, 222), 14)
    canvas.paint(everything, clouds, Part.CLOUD, canvas.colour * 0.2 + bright * 0.8)


def draw_ground(
    canvas: Canvas, camera: Camera, rng: RandomState, half_road: float, pavements: tuple[float, float], verge: bool
) -> None:
    """Lay road with markings, two pavements with kerbs and, beyond them, grass or more paving."""
    window = canvas.window(camera.horizon, canvas.height, 0, canvas.width)
    assert window is not None
    rows, columns = canvas.grid(window)
    below = rows > camera.horizon + 0.5
    z = camera.focal * camera.height / np.where(below, rows - camera.horizon, 1)
    x = (columns - camera.centre) * z / camera.focal
    height, width = x.shape
    rough = 9 * value_noise(rng, height, width, 3) + 7 * value_noise(rng, height, width, 11)

    asphalt = jitter(rng, (88, 89, 95), 20)
    canvas.paint(window, below, Part.ROAD, asphalt + rough[..., None], z)
    # Lane markings and worn patches belong to the road.
    dash = (np.abs(x) < 0.09) & (z % 5 < 2.4)
    edge = np.abs(np.abs(x) - half_road + 0.35) < 0.07
    marking = dash | (edge if rng.uniform() < 0.5 else False)
    canvas.paint(window, below & marking & (rng.uniform() < 0.75), None, np.array([190.0, 190, 186]) + rough[..., None])
    patch = (np.abs(x - rng.uniform(-2, 2)) < rng.uniform(0.5, 1.5)) & (np.abs(z - rng.uniform(5, 12)) < 2)
    canvas.shade(window, below & patch, rng.uniform(0.82, 1.15))

    grass = pick(rng, GREENS, 10) + np.array([22, 28, 4])
    for side, breadth in zip((-1, 1), pavements, strict=True):
        offset = side * x - half_road
        paving = jitter(rng, (140, 128, 114), 20)
        slabs = np.where((z % 1.2 < 0.12) | (offset % 0.9 < 0.07), -12, 0)
        canvas.paint(window, below & (offset > 0), Part.PAVEMENT, paving + (0.8 * rough + slabs)[..., None])
        canvas.paint(window, below & (offset > 0) & (offset < 0.22), None, paving + 28)  # kerb
        if verge:
            canvas.paint(window, below & (offset > breadth), Part.GRASS, grass + 1.6 * rough[..., None])


def draw_skyline(canvas: Canvas, camera: Camera, rng: RandomState, greenery: float) -> None:
    """Close the end of the street with distant buildings and trees around the horizon."""
    column = -10.0
    while column < canvas.width:
        width, height = rng.uniform(8, 34), rng.uniform(2, 17)
        part = Part.TREE if rng.uniform() < 0.3 + 0.4 * greenery else Part.BUILDING
        colour = pick(rng, GREENS if part == Part.TREE else FACADES)
        top = camera.horizon - height
        if part == Part.TREE:
            canvas.ellipse(camera.horizon, column + width / 2, height, 0.6 * width, part, colour, 90)
        else:
            canvas.rectangle(top, camera.horizon + 1.5, column, column + width, part, colour, 90)
        column += width * rng.uniform(0.7, 1.1)
    canvas.distance[canvas.distance > 500] = 500


def _upright(
    canvas: Canvas, camera: Camera, x: float, near: float, far: float, height: float
) -> tuple[tuple[slice, slice], np.ndarray, np.ndarray, np.ndarray] | None:
    """Pixels of a plane parallel to the street: window, mask, distance and height above ground (metres)."""
    c0, c1 = sorted((camera.column(x, near), camera.column(x, far)))
    window = canvas.window(camera.row(height, near), camera.row(0, near), c0, c1)
    if window is None:
        return None
    rows, columns = canvas.grid(window)
    offset = columns - camera.centre
    ahead = offset * x > 0
    z = camera.focal * x / np.where(ahead, offset, x)
    y = camera.height - (rows - camera.horizon) * z / camera.focal
    mask = ahead & (z >= near) & (z < far) & (y >= 0) & (y < height)
    return window, mask, np.broadcast_to(z, mask.shape), y


def draw_building(
    canvas: Canvas, camera: Camera, rng: RandomState, x: float, near: float, far: float, variant: Variant
) -> None:
    """Raise a building with its front along ``x`` from ``near`` to ``far`` and its flank at ``near``."""
    is_house = rng.uniform() < variant.roofs
    part = Part.HOUSE if is_house else Part.BUILDING
    storey, bay = rng.uniform(2.6, 3.6), rng.uniform(1.6, 3.2)
    height = rng.uniform(5.5, 8) if is_house else storey * rng.randint(2, 7)
    wall, glass = pick(rng, FACADES, 22), pick(rng, ((58, 62, 70), (92, 104, 118), (38, 38, 42)), 10)
    flank, roof = wall * rng.uniform(0.72, 0.95), pick(rng, ROOFS)
    edges = sorted((camera.column(x, near), camera.column(x + (14 if x > 0 else -14), near)))
    canvas.rectangle(camera.row(height, near), camera.row(0, near), *edges, part, flank, near)
    if (plane := _upright(canvas, camera, x, near, far, height)) is None:
        return
    window, mask, z, y = plane
    grain = 6 * value_noise(rng, *mask.shape, 4)[..., None]
    canvas.paint(window, mask, part, wall + grain, z)
    opening = (y % storey > 0.3 * storey) & (y % storey < 0.8 * storey) & (z % bay > 0.3 * bay) & (z % bay < 0.75 * bay)
    eaves = height - 2.8 if is_house else height - 0.5
    canvas.paint(window, mask & opening & (y < eaves), None, glass + grain)
    canvas.paint(window, mask & (y > eaves), None, (roof if is_house else wall * 0.85) + grain)
    if rng.uniform() < 0.35:  # a shop front
        canvas.paint(window, mask & (y < 2.6) & (y > 0.4), None, pick(rng, FACADES + ROOFS, 30) + grain)


def draw_barrier(
    canvas: Canvas, camera: Camera, rng: RandomState, x: float, near: float, far: float, solid: bool
) -> None:
    """Draw a wall (``solid``) or a fence of bars, through which the background shows, along the street."""
    height = rng.uniform(1.1, 2.4)
    if (plane := _upright(canvas, camera, x, near, far, height)) is None:
        return
    window, mask, z, y = plane
    grain = 7 * value_noise(rng, *mask.shape, 3)[..., None]
    if solid:
        brick = np.where((y % 0.5 < 0.1) | (z % 1.1 < 0.08), -14, 0)[..., None]
        canvas.paint(window, mask, Part.WALL, pick(rng, FACADES, 20) + grain + brick, z)
        return
    colour = pick(rng, (*STEEL, (104, 84, 62), (74, 84, 58)), 15)
    spacing = rng.uniform(0.3, 0.7)
    bars = (z % spacing < 0.45 * spacing) | (y > height - 0.14) | (np.abs(y - 0.3) < 0.1)
    shown = canvas.colour[window] * 0.75 + colour * 0.25
    canvas.paint(window, mask, Part.FENCE, np.where(bars[..., None], colour + grain, shown), z)


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
