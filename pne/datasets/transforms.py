"""mmsegmentation's random transforms in less time: the same draws, the same pixels, bit by bit.

What they compute for each value of an 8-bit image is computed once for its 256 values, pixels are counted and not
sorted, and colour planes are taken apart in one pass.
"""

# ruff: noqa: NPY002 (the draws are those of mmsegmentation, from numpy's global generator)

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from mmcv.transforms.utils import cache_randomness
from mmseg.datasets.transforms import PackSegInputs, PhotoMetricDistortion, RandomCrop, RandomFlip
from numpy import random

VALUES = np.arange(256, dtype=np.uint8)
FLIPS = {"horizontal": 1, "vertical": 0, "diagonal": -1}


def quicken(transforms: Sequence[Any]) -> None:
    """Let mmsegmentation's transforms of a pipeline work in less time; all others stay as they are."""
    for transform in transforms:
        transform.__class__ = QUICK.get(type(transform), type(transform))


class QuickCrop(RandomCrop):
    """Crop as `RandomCrop`, which sorts all labels of a crop to count them."""

    @cache_randomness
    def crop_bbox(self, results: dict) -> tuple[int, int, int, int]:
        """Draw a crop (top, bottom, left, right), again while one class fills too much of it."""
        if self.cat_max_ratio >= 1 or results["gt_seg_map"].dtype != np.uint8:
            return super().crop_bbox(results)
        box = self._draw(results["img"])
        for _ in range(10):
            labels = self.crop(results["gt_seg_map"], box)
            # In float32, which holds every number of pixels up to 4096 x 4096.
            counts = cv2.calcHist([labels], [0], None, [256], [0, 256]).ravel().astype(np.int64)
            counts = counts[(counts > 0) & (self.ignore_index != VALUES)]
            if len(counts) > 1 and counts.max() / counts.sum() < self.cat_max_ratio:
                break
            box = self._draw(results["img"])
        return box

    def _draw(self, image: np.ndarray) -> tuple[int, int, int, int]:
        top, left = (
            random.randint(0, max(there - wanted, 0) + 1)
            for there, wanted in zip(image.shape, self.crop_size, strict=False)
        )
        return top, top + self.crop_size[0], left, left + self.crop_size[1]


class QuickFlip(RandomFlip):
    """Flip as `RandomFlip`, whose image is a view with negative strides that delays all that follows."""

    def _flip(self, results: dict) -> None:
        flipped = cv2.flip(results["img"], FLIPS[results["flip_direction"]])
        super()._flip(results)
        results["img"] = flipped


class QuickDistortion(PhotoMetricDistortion):
    """Distort as `PhotoMetricDistortion`, which computes in float32 for every pixel."""

    def convert(self, img: np.ndarray, alpha: float = 1, beta: float = 0) -> np.ndarray:
        """Multiply and add with a table of the values."""
        if img.dtype != np.uint8:
            return super().convert(img, alpha, beta)
        return cv2.LUT(img, super().convert(VALUES, alpha, beta))

    def saturation(self, img: np.ndarray) -> np.ndarray:
        """Distort the saturation, or not."""
        if img.dtype != np.uint8:
            return super().saturation(img)
        if not random.randint(2):
            return img
        alpha = random.uniform(self.saturation_lower, self.saturation_upper)
        return _replaced(img, 1, super().convert(VALUES, alpha))

    def hue(self, img: np.ndarray) -> np.ndarray:
        """Distort the hue, or not."""
        if img.dtype != np.uint8:
            return super().hue(img)
        if not random.randint(2):
            return img
        shifted = (VALUES.astype(int) + random.randint(-self.hue_delta, self.hue_delta)) % 180
        return _replaced(img, 0, shifted.astype(np.uint8))


def _replaced(image: np.ndarray, channel: int, table: np.ndarray) -> np.ndarray:
    """Replace the values of a channel of HSV."""
    hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    cv2.insertChannel(cv2.LUT(cv2.extractChannel(hsv, channel), table), hsv, channel)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)


class QuickPack(PackSegInputs):
    """Pack as `PackSegInputs`, which takes colours apart pixel by pixel."""

    def transform(self, results: dict) -> dict:
        """Return inputs and data sample."""
        image = results.get("img")
        if image is not None and image.ndim == 3:
            results["img"] = np.stack(cv2.split(image)).transpose(1, 2, 0)
        return super().transform(results)


QUICK = {
    RandomCrop: QuickCrop,
    RandomFlip: QuickFlip,
    PhotoMetricDistortion: QuickDistortion,
    PackSegInputs: QuickPack,
}
