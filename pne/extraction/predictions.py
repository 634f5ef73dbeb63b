"""Images, labels and predictions of one run, for the panels that people look at."""

from collections.abc import Sequence

import numpy as np

from pne.errors import UserError
from pne.extraction.archives import Predictions
from pne.extraction.network import Network


def extract_predictions(network: Network, indices: Sequence[int]) -> Predictions:
    """Predict the images at the given positions of the evaluated split, single-scale, at the size of their labels.

    Raises
    ------
    UserError
        If there is no such image.
    """
    for index in indices:
        if index >= len(network.dataset):
            raise UserError(f"{network.run.run}: no image {index}; the evaluated split has {len(network.dataset)}")
    parts = [network.see(index) for index in indices]
    sizes = np.array([label.shape for _, label, _ in parts], np.int32)
    height, width = sizes.max(0)
    shape = (len(parts), height, width)
    image = np.full((*shape, 3), 255, np.uint8)
    label, prediction = np.full(shape, 255, np.uint8), np.full(shape, 255, np.uint8)
    for row, (one_image, one_label, one_prediction) in enumerate(parts):
        area = np.s_[row, : sizes[row, 0], : sizes[row, 1]]
        image[area], label[area], prediction[area] = one_image, one_label, one_prediction
    return Predictions(
        about={"run": network.run.run, "weights_sha256": network.train.weights_sha256},
        image=image,
        label=label,
        prediction=prediction,
        size=sizes,
        index=np.array(indices, np.int32),
        names=np.array([network.name(index) for index in indices]),
        classes=np.array(network.classes),
        palette=network.palette,
    )
