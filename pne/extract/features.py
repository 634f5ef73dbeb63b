"""Extract a class-balanced sample of pixels from the images that a run is evaluated on."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from pne.extract.archives import Features
from pne.extract.network import Network, Pixels
from pne.losses.pixels import resize_labels

# A class-balanced sample of pixels, drawn while images pass by, the same for every run on the same labels.


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


IGNORE_INDEX = 255


class _Store:
    """Rows of arrays by the reference of their pixel; rows that left the sample are dropped."""

    def __init__(self) -> None:
        self.references = np.empty(0, np.int64)
        self.arrays: dict[str, NDArray] = {}

    def update(self, kept: NDArray[np.int64], references: NDArray[np.int64], arrays: dict[str, NDArray]) -> None:
        """Keep the rows of ``kept`` among the stored and the given rows."""
        old, new = np.isin(self.references, kept), np.isin(references, kept)
        self.references = np.concatenate([self.references[old], references[new]])
        for name, array in arrays.items():
            rows = array[new]
            self.arrays[name] = np.concatenate([self.arrays[name][old], rows]) if name in self.arrays else rows

    def sorted_as(self, order: NDArray[np.int64]) -> dict[str, NDArray]:
        """Return the arrays with rows in the order of the given references."""
        place = {reference: row for row, reference in enumerate(self.references.tolist())}
        rows = np.array([place[reference] for reference in order.tolist()], dtype=np.int64)
        return {name: array[rows] for name, array in self.arrays.items()}


def extract_features(network: Network, per_class: int, seed: int) -> Features:
    """Sample pixels of every class, by label and among the correctly predicted ones.

    Labels are brought to the size of the feature map as the losses do it; the prediction is that of the feature map's
    cell, before upsampling.

    Parameters
    ----------
    network : Network
    per_class : int
        Most pixels of a class in each of the two samples.
    seed : int
        Seed of the samples. Runs on the same images with feature maps of one size share the sample by label.
    """
    by_label, by_correct, store = ClassSample(per_class), ClassSample(per_class), _Store()
    offset = 0
    names = []
    for index in range(len(network.dataset)):
        pixels = network.look(index)
        height, width = pixels.logits.shape[2:]
        label = resize_labels(pixels.label, height, width).flatten().cpu().numpy()
        confidence, prediction = pixels.logits[0].flatten(1).softmax(0).max(0)
        prediction_array = prediction.cpu().numpy()
        valid = (label != IGNORE_INDEX) & (label >= 0) & (label < len(network.classes))
        correct = valid & (prediction_array == label)
        keys = pixel_keys(seed, index, height * width)
        references = offset + np.arange(height * width)
        kept_label = by_label.offer(keys[valid], label[valid], references[valid])
        kept_correct = by_correct.offer(keys[correct], label[correct], references[correct])
        kept = np.union1d(kept_label, kept_correct)
        fresh = np.flatnonzero(np.isin(references, kept))
        rows = _rows(network, pixels, fresh)
        rows |= {
            "label": label[fresh].astype(np.int16),
            "prediction": prediction_array[fresh].astype(np.int16),
            "confidence": confidence.cpu().numpy()[fresh].astype(np.float32),
            "image": np.full(len(fresh), index, np.int32),
            "position": np.stack([fresh // width, fresh % width], 1).astype(np.int32),
            "grid": np.tile(np.array([height, width], np.int32), (len(fresh), 1)),
        }
        store.update(kept, references[fresh], rows)
        offset += height * width
        names.append(network.name(index))
    label_order, correct_order = by_label.references(), by_correct.references()
    order = np.concatenate([label_order, correct_order[~np.isin(correct_order, label_order)]])
    return Features(
        about={
            "run": network.run.run,
            "weights_sha256": network.train.weights_sha256,
            "seed": seed,
            "per_class": per_class,
            "images": len(names),
        },
        by_label=np.isin(order, label_order),
        by_correct=np.isin(order, correct_order),
        names=np.array(names),
        classes=np.array(network.classes),
        palette=network.palette,
        **store.sorted_as(order),
    )


@torch.no_grad()
def _rows(network: Network, pixels: Pixels, chosen: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
    """Take the penultimate features, and the projection where there is one, of chosen cells of the feature map."""
    index = torch.as_tensor(chosen, device=pixels.features.device)

    def take(maps: torch.Tensor) -> NDArray[np.float32]:
        return maps[0].flatten(1)[:, index].T.float().cpu().numpy()

    rows = {"penultimate": take(pixels.features)}
    if network.branch is not None:
        rows["projection"] = take(network.branch.projection(pixels.features))
    return rows
