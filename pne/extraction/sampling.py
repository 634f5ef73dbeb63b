"""A class-balanced sample of pixels, drawn while images pass by, the same for every run on the same labels."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


def pixel_keys(seed: int, image: int, pixels: int) -> NDArray[np.float64]:
    """Give each pixel of an image its random key; the keys depend on nothing but seed, image and position.

    Parameters
    ----------
    seed : int
        Seed of the sample, >= 0.
    image : int
        Index of the image in its split, >= 0.
    pixels : int
        Number of pixels of the feature map, row by row.

    Returns
    -------
    ndarray, shape (pixels,), float64
        Uniform in [0, 1).
    """
    return np.random.default_rng([seed, image]).random(pixels)


@dataclass
class ClassSample:
    """Keep the ``size`` pixels of the smallest keys per class; that is a uniform sample of each class's pixels.

    Since a key depends on the pixel alone, two models that are shown the same labels keep the same pixels.

    Parameters
    ----------
    size : int
        Most pixels kept of a class.
    """

    size: int
    _keys: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    _references: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def offer(
        self, keys: NDArray[np.float64], classes: NDArray[np.integer], references: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Take in pixels and return the references of those that are kept for now.

        Parameters
        ----------
        keys : ndarray, shape (n,), float64
        classes : ndarray, shape (n,), integer
        references : ndarray, shape (n,), int64
            Distinct numbers by which the caller knows the pixels.

        Returns
        -------
        ndarray, int64
            References of all pixels in the sample after this call.
        """
        for value in np.unique(classes):
            chosen = classes == value
            joined = np.concatenate([self._keys.get(int(value), np.empty(0)), keys[chosen]])
            known = np.concatenate([self._references.get(int(value), np.empty(0, np.int64)), references[chosen]])
            kept = np.argsort(joined, kind="stable")[: self.size]
            self._keys[int(value)], self._references[int(value)] = joined[kept], known[kept]
        return self.references()

    def references(self) -> NDArray[np.int64]:
        """Return the references of the sample, by class and then by key."""
        parts = [self._references[value] for value in sorted(self._references)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)
