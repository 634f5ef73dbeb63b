"""t-SNE coordinates of pixel embeddings, computed apart from their plot and stored."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from analysis.figures import MAP, ResolvedFigure, data_folder, features_file
from pne.errors import UserError
from pne.extract.archives import Archive, Features
from pne.spec import ResolvedTrack

METHODS = ("sklearn", "opentsne")
PERPLEXITY = 30.0
PCA_COMPONENTS = 50


@dataclass
class Map(Archive):
    """Pixels on one or two t-SNE planes.

    ``panel`` tells which plane a pixel's coordinates are on; ``by_label`` and ``by_correct`` which sample it is of.
    """

    xy: Annotated[NDArray[np.float32], "n2"]
    panel: Annotated[NDArray[np.int8], "n"]
    label: Annotated[NDArray[np.int16], "n"]
    prediction: Annotated[NDArray[np.int16], "n"]
    by_label: Annotated[NDArray[np.bool_], "n"]
    by_correct: Annotated[NDArray[np.bool_], "n"]
    classes: Annotated[NDArray[np.str_], "c"]
    palette: Annotated[NDArray[np.uint8], "c3"]


def unit_rows(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scale each row to unit length, so that Euclidean neighbours are neighbours by cosine."""
    x = x.astype(np.float64)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def principal_components(x: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Project centred rows on their first principal components, each with the sign of its largest entry positive."""
    centred = x - x.mean(0)
    left, scale, right = np.linalg.svd(centred, full_matrices=False)
    count = min(count, len(scale))
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(1)])
    return (left * scale * np.where(signs == 0, 1, signs))[:, :count]


def initial_positions(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two principal components at the usual scale for t-SNE (standard deviation 1e-4), shape (n, 2)."""
    start = principal_components(x, 2)
    start = np.pad(start, ((0, 0), (0, 2 - start.shape[1])))
    return start / max(start[:, 0].std(), 1e-12) * 1e-4


def embed(x: NDArray[np.floating], start: NDArray[np.floating], method: str = "sklearn") -> NDArray[np.float32]:
    """Compute t-SNE coordinates of rows by cosine, deterministically (one thread).

    Parameters
    ----------
    x : ndarray, shape (n, D)
        Embeddings, scaled to unit length here.
    start : ndarray, shape (n, 2)
        Where the points begin.
    method : {'sklearn', 'opentsne'}

    Returns
    -------
    ndarray, shape (n, 2), float32

    Raises
    ------
    UserError
        If there are fewer than five points, or the method is unknown or not installed.
    """
    if len(x) < 5:
        raise UserError(f"t-SNE needs at least 5 pixels, got {len(x)}; raise --per-class of `python -m pne.extract`")
    reduced = principal_components(unit_rows(x), PCA_COMPONENTS)
    perplexity = min(PERPLEXITY, (len(x) - 1) / 3)
    with threadpool_limits(limits=1):
        if method == "sklearn":
            from sklearn.manifold import TSNE

            model = TSNE(perplexity=perplexity, init=start.astype(np.float32), random_state=0, n_jobs=1)
            return model.fit_transform(reduced).astype(np.float32)
        if method == "opentsne":
            try:
                from openTSNE import TSNE as OpenTSNE
            except ImportError:
                raise UserError("openTSNE is not installed; `pip install openTSNE`, or use --method sklearn") from None
            begun = start.astype(np.float64)  # its own copy, which it may change
            model = OpenTSNE(perplexity=perplexity, initialization=begun, random_state=0, n_jobs=1)
            return np.asarray(model.fit(reduced), dtype=np.float32)
    raise UserError(f"--method: no t-SNE method {method!r}; allowed: {', '.join(METHODS)}")


def thin(features: Features, per_class: int) -> Features:
    """Keep the first pixels of each class of both samples; they stand in the order in which they were drawn."""
    by_label, by_correct = (
        sample & (pd.Series(sample).groupby(features.label).cumsum() <= per_class).to_numpy()
        for sample in (features.by_label, features.by_correct)
    )
    kept = by_label | by_correct
    return replace(features.select(kept), by_label=by_label[kept], by_correct=by_correct[kept])


def shared_pixels(first: Features, second: Features) -> tuple[Features, Features]:
    """Keep the pixels of the label samples that both runs hold, in one order; a sample by label is the same for both.

    Raises
    ------
    UserError
        If the runs have no pixel in common (other images, other size of the feature map or another seed).
    """
    first, second = (features.select(features.by_label) for features in (first, second))
    keys = [pd.MultiIndex.from_arrays(np.c_[f.image, f.position, f.grid].T) for f in (first, second)]
    rows = keys[1].get_indexer(keys[0])
    if (rows < 0).all():
        runs = f"{first.about.get('run')} and {second.about.get('run')}"
        raise UserError(f"{runs}: their samples share no pixel; extract both with the same seed and data")
    return first.select(rows >= 0), second.select(rows[rows >= 0])


def make_map(
    features: Sequence[Features], per_class: int, method: str, about: dict[str, Any], own_starts: bool = False
) -> Map:
    """Place pixels of one or two runs.

    Of one run both samples are on one plane, so that a pixel of both stands at the same place in both panels. Of two
    runs the same pixels are on a plane each, begun where the first run's pixels are, or each run's own.
    """
    parts: Sequence[Features] = [thin(one, per_class) for one in features]
    if len(parts) == 2:
        parts, about = shared_pixels(*parts), about | {"own_starts": own_starts}
    begun_by = parts if own_starts else parts[:1] * len(parts)
    starts = [initial_positions(unit_rows(part.penultimate)) for part in begun_by]
    pixels = len(parts[0].label)
    names = ("label", "prediction", "by_label", "by_correct")
    return Map(
        about=about | {"pixels": pixels, "method": method},
        xy=np.concatenate([embed(part.penultimate, start, method) for part, start in zip(parts, starts, strict=True)]),
        panel=np.repeat(np.arange(len(parts), dtype=np.int8), pixels),
        classes=parts[0].classes,
        palette=parts[0].palette,
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
    )


def compute_map(figure: ResolvedFigure, track: ResolvedTrack, method: str, per_class: int, own_starts: bool) -> Path:
    """Compute t-SNE coordinates from the stored features and store them.

    Raises
    ------
    UserError
        If the figure shows no t-SNE, or features are missing.
    """
    if figure.declaration.kind not in ("tsne_sampling", "tsne_loss"):
        raise UserError(f"figure {figure.name}: a figure of kind {figure.declaration.kind} has no t-SNE coordinates")
    features = [Features.read(features_file(track.runs[run])) for run in figure.first_seed_runs]
    about = {"figure": figure.name, "runs": figure.first_seed_runs}
    data = make_map(features, per_class, method, about, own_starts)
    path = data_folder(figure, track) / MAP
    data.write(path)
    return path
