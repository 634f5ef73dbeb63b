"""Averages over pairs of pixels, of the sample and of resampled images.

In a resample that draws image i w_i times, a pair of different pixels of image i counts w_i times, and a pair of a
pixel of image i with one of image j counts w_i * w_j times. Pixels of two copies of one image are no pair: they would
count as across images although they are as alike as within one (w_i^2 in all), and every resample would find
embeddings closer together than the sample.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def _by_image(images: NDArray[np.integer], weights: Array) -> tuple[NDArray[np.float64], Array]:
    """Which pixel is of which image, shape (I, n), and how often each image was drawn, shape (R, I)."""
    _, first, place = np.unique(images, return_index=True, return_inverse=True)
    return (place[None] == np.arange(len(first))[:, None]).astype(np.float64), weights[:, first]


def class_cosines(
    unit: Array, labels: NDArray[np.integer], images: NDArray[np.integer], weights: Array
) -> tuple[list[int], Array]:
    """Average the cosine over all pairs of pixels of two classes; a pixel is never paired with itself.

    Parameters
    ----------
    unit : ndarray, shape (n, D)
        Embeddings of unit length.
    labels, images : ndarray, shape (n,)
    weights : ndarray, shape (R, n)
        How often every pixel's image was drawn.

    Returns
    -------
    classes : list of int
        The classes that occur, sorted; K of them.
    cosines : ndarray, shape (R, K, K)
        NaN where a resample holds no pair.
    """
    classes = np.unique(labels)
    member = (labels[:, None] == classes[None]).astype(np.float64)  # (n, K)
    inside, drawn = _by_image(images, weights)
    sums = np.einsum("in,nk,nd->ikd", inside, member, unit, optimize=True)  # of each image and class
    number = inside @ member  # (I, K)
    dots, pairs = (
        np.einsum("rkd,rld->rkl", total, total, optimize=True)
        for total in (np.tensordot(drawn, sums, 1), (drawn @ number)[:, :, None])
    )
    # The square of a weighted sum holds pairs within an image w^2 times, and every pixel with itself.
    excess = drawn**2 - drawn
    dots -= np.tensordot(excess, np.einsum("ikd,ild->ikl", sums, sums), 1)
    pairs -= np.tensordot(excess, number[:, :, None] * number[:, None, :], 1)
    diagonal = np.arange(len(classes))
    dots[:, diagonal, diagonal] -= weights @ (member * (unit**2).sum(1, keepdims=True))
    pairs[:, diagonal, diagonal] -= weights @ member
    return classes.tolist(), np.divide(dots, pairs, out=np.full_like(dots, np.nan), where=pairs > 0.5)


def uniformity(unit: Array, images: NDArray[np.integer], weights: Array) -> Array:
    """Log of the mean Gaussian potential exp(-2 |x - y|^2) over all pairs (Wang & Isola 2020), per resample.

    Lower is more uniform; 0 when all embeddings are equal. Pixels are not paired with themselves; pairs are weighed as
    by `class_cosines`.
    """
    potential = np.exp(-4 * (1 - np.clip(unit @ unit.T, -1, 1)))  # |x - y|^2 = 2 - 2 cos
    np.fill_diagonal(potential, 0)
    inside, drawn = _by_image(images, weights)
    excess = drawn**2 - drawn
    within = ((inside @ potential) * inside).sum(1)
    number = inside.sum(1)
    total = ((weights @ potential) * weights).sum(1) - excess @ within
    pairs = (drawn @ number) ** 2 - excess @ number**2 - drawn @ number
    return np.log(np.divide(total, pairs, out=np.full_like(total, np.nan), where=pairs > 0.5))
