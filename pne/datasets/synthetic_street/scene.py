"""One scene: a street laid out at random, painted from far to near, lit, and seen through a small sensor."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.random import MT19937, RandomState, SeedSequence

from pne.datasets.synthetic_street import IGNORE_INDEX, SPLITS, Part, Variant, objects
from pne.datasets.synthetic_street.canvas import Camera, Canvas, value_noise

HEIGHT, WIDTH = 64, 96
OVERSAMPLING = 2
FAR = 60.0


def draw_scene(variant: Variant, split: str, index: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw one street scene.

    Parameters
    ----------
    variant : Variant
        Classes and layout statistics.
    split : {'train', 'test'}
        The splits have separate random streams.
    index : int
        Number of the scene in its split, from 0.
    seed : int
        Seed of the data set.

    Returns
    -------
    image : ndarray, shape (64, 96, 3), uint8
        RGB.
    label : ndarray, shape (64, 96), uint8
        Class index of ``variant``, or 255 on the picture's border and on the hood of the camera's own car.
    """
    # RandomState's streams are frozen by numpy's compatibility policy, those of Generator are not.
    rng = RandomState(MT19937(SeedSequence([seed, variant.stream, SPLITS.index(split), index])))
    canvas = Canvas(HEIGHT * OVERSAMPLING, WIDTH * OVERSAMPLING)
    camera = Camera(
        horizon=canvas.height * rng.uniform(0.38, 0.52),
        centre=canvas.width * rng.uniform(0.32, 0.68),
        focal=canvas.height * rng.uniform(0.85, 1.25),
        height=rng.uniform(*variant.camera_height),
    )
    _lay_out(canvas, camera, rng, variant)
    hood = _draw_hood(canvas, rng)
    _illuminate(canvas, camera, rng)
    return _expose(canvas, rng), _label(canvas, variant, hood)


def _lay_out(canvas: Canvas, camera: Camera, rng: RandomState, variant: Variant) -> None:
    half_road = rng.uniform(*variant.half_road)
    pavements = (rng.uniform(2.2, 5.5), rng.uniform(2.2, 5.5))
    verge = rng.uniform() < variant.verge
    objects.draw_sky(canvas, rng, camera.horizon)
    objects.draw_skyline(canvas, camera, rng, variant.greenery)
    objects.draw_ground(canvas, camera, rng, half_road, pavements, verge)

    fronts: list[tuple[float, Callable[[], None]]] = []  # all behind the things on road and pavements
    things: list[tuple[float, Callable[[], None]]] = []

    def stand(group: list, draw: Callable[..., None], x: float, z: float, *extra: object) -> None:
        group.append((z, partial(draw, canvas, camera, rng, x, z, *extra)))

    for side, pavement in zip((-1, 1), pavements, strict=True):
        edge = half_road + pavement + (rng.uniform(2, 7) if verge else 0)
        near = rng.uniform(1.5, 6)
        while near < FAR:
            far = near + rng.uniform(6, 18)
            if rng.uniform() < variant.gaps:
                if rng.uniform() < variant.greenery:
                    for _ in range(rng.randint(1, 4)):
                        part = Part.TREE if rng.uniform() < 0.6 else Part.BUSH
                        size = rng.uniform(3.5, 8) if part == Part.TREE else rng.uniform(0.8, 2.2)
                        x, z = side * (edge + rng.uniform(1, 6)), max(rng.uniform(near, far), 3)
                        stand(fronts, objects.draw_foliage, x, z, part, size)
                if rng.uniform() < variant.low_walls:
                    stand(fronts, objects.draw_barrier, side * edge, near, far, rng.uniform() < 0.4)
            else:
                stand(fronts, objects.draw_building, side * edge, near, far, variant)
            near = far + rng.uniform(0, 1.5)
        if rng.uniform() < 0.25:  # a railing at the kerb
            start = rng.uniform(4, 15)
            stand(things, objects.draw_barrier, side * (half_road + 0.3), start, start + rng.uniform(4, 10), False)
        for _ in range(_count(rng, 0.8 * variant.greenery)):
            x = side * (half_road + 0.8)
            stand(things, objects.draw_foliage, x, _distance(rng, 5), Part.TREE, rng.uniform(3.5, 7))
        for _ in range(_count(rng, 2.2 * variant.greenery)):  # in front of the buildings
            size = rng.uniform(1.1, 2.8)
            x = side * (edge + rng.uniform(-0.4, 0.4))
            stand(things, objects.draw_foliage, x, _distance(rng, 5), Part.BUSH, size)
        for _ in range(_count(rng, variant.furniture / 2)):
            x = side * (half_road + rng.uniform(0.2, 0.7))
            stand(things, objects.draw_pole, x, _distance(rng, 3.5), rng.uniform() < 0.45)
        for _ in range(_count(rng, variant.people / 2)):
            x = side * (half_road + rng.uniform(0.4, pavement))
            stand(things, objects.draw_pedestrian, x, _distance(rng, 4))
        for _ in range(_count(rng, variant.traffic / 2)):
            parked = half_road > 3 and rng.uniform() < 0.6
            x = side * (half_road - 1.1 if parked else half_road * 0.45)
            stand(things, objects.draw_vehicle, x, _distance(rng, 5), rng.uniform() < variant.buses)
        for _ in range(_count(rng, variant.riders / 2)):
            stand(things, objects.draw_bicyclist, side * rng.uniform(0.4, 1) * half_road, _distance(rng, 4))
    for group in (fronts, things):
        for _, draw in sorted(group, key=lambda item: -item[0]):
            draw()


def _count(rng: RandomState, mean: float) -> int:
    """Draw a number from 0 to 8 with this mean, which is at most 8."""
    return int((rng.uniform(size=8) < mean / 8).sum())


def _distance(rng: RandomState, near: float) -> float:
    """Distance in metres; near things are more frequent than far ones."""
    return near / (1 - rng.uniform(0, 0.75))


def _draw_hood(canvas: Canvas, rng: RandomState) -> np.ndarray:
    """Draw the hood of the camera's own car in some scenes; returns the pixels it takes."""
    before = canvas.part.copy()
    canvas.part[:] = IGNORE_INDEX
    if rng.uniform() < 0.4:
        colour = np.array([46.0, 46, 50]) + rng.uniform(-15, 60)
        middle, tall = canvas.width * rng.uniform(0.4, 0.6), rng.uniform(5, 12)
        canvas.ellipse(canvas.height, middle, tall, canvas.width * 0.55, Part.CAR, colour, 1)
    hood = canvas.part != IGNORE_INDEX
    canvas.part[:] = before
    return hood


def _illuminate(canvas: Canvas, camera: Camera, rng: RandomState) -> None:
    """Haze with distance, one shaded side of the street, then colour cast, contrast and brightness of the scene."""
    haze = np.array([190.0, 194, 198]) + rng.uniform(-20, 20)
    density = rng.uniform(0, 0.012)
    clear = (1 / (1 + density * canvas.distance))[..., None]
    solid = (canvas.part != Part.SKY) & (canvas.part != Part.CLOUD)
    canvas.colour[solid] = (canvas.colour * clear + haze * (1 - clear))[solid]
    if rng.uniform() < 0.5:
        rows, columns = canvas.grid((slice(0, canvas.height), slice(0, canvas.width)))
        tilt = rng.uniform(-1.2, 1.2)
        dark = (columns - camera.centre - tilt * (rows - camera.horizon)) * (1 if rng.uniform() < 0.5 else -1) > 0
        canvas.colour[dark & solid] *= rng.uniform(0.65, 0.9)
    light = canvas.colour / 255
    light *= rng.uniform(0.78, 1.2) * (1 + rng.uniform(-0.05, 0.05, 3))
    bend = rng.uniform(-0.3, 0.3)  # > 0 lifts the middle tones, < 0 lowers them
    light = np.clip(light, 0, 1)
    light = light + bend * light * (1 - light)
    patches = 1 + 0.08 * value_noise(rng, canvas.height, canvas.width, 24)
    canvas.colour = np.clip(255 * light * patches[..., None], 0, 255)


def _expose(canvas: Canvas, rng: RandomState) -> np.ndarray:
    """Average the oversampled pixels and add sensor noise, shape (H, W, 3), uint8."""
    colour = canvas.colour
    mean = (colour[::2, ::2] + colour[1::2, ::2] + colour[::2, 1::2] + colour[1::2, 1::2]) / 4
    strength = rng.uniform(2, 7)
    shared = rng.uniform(-1, 1, mean.shape[:2])[..., None]
    noise = shared + rng.uniform(-1, 1, mean.shape) * 0.5
    return np.floor(np.clip(mean + strength * noise, 0, 255) + 0.5).astype(np.uint8)


def _label(canvas: Canvas, variant: Variant, hood: np.ndarray) -> np.ndarray:
    """Take one sample per output pixel, rename parts to classes, ignore the border and the hood; uint8."""
    table = np.full(256, IGNORE_INDEX, np.uint8)
    for part, label in variant.parts.items():
        table[part] = label
    label = table[canvas.part[1::OVERSAMPLING, 1::OVERSAMPLING]]
    label[hood[1::OVERSAMPLING, 1::OVERSAMPLING]] = IGNORE_INDEX
    label[[0, -1]] = IGNORE_INDEX
    label[:, [0, -1]] = IGNORE_INDEX
    return label
