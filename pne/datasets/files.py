"""Which images and labels a split has, and how they pair."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pne.datasets.layouts import Layout, Split


@dataclass(frozen=True)
class SplitFiles:
    """Files of one split by stem: the path below the split's folder without the suffix.

    Attributes
    ----------
    images, labels : dict of str to Path
        In sorted order of the stems. ``labels`` is empty where labels are not published.
    """

    images: dict[str, Path]
    labels: dict[str, Path]

    @property
    def pairs(self) -> list[tuple[Path, Path]]:
        """The image and the label of every stem that has both."""
        return [(path, self.labels[stem]) for stem, path in self.images.items() if stem in self.labels]


def find_files(layout: Layout, root: Path, split: Split) -> SplitFiles:
    """List the files of a split; a folder that does not exist has none."""
    labels = _by_stem(root / split.labels, layout.label_suffix) if split.labels else {}
    return SplitFiles(_by_stem(root / split.images, layout.image_suffix), labels)


def _by_stem(folder: Path, suffix: str) -> dict[str, Path]:
    return dict(sorted((str(p.relative_to(folder).as_posix())[: -len(suffix)], p) for p in _walk(folder, suffix)))


def _walk(folder: Path, suffix: str) -> Iterator[Path]:
    for parent, _, names in os.walk(folder, followlinks=True):
        for name in names:
            if name.endswith(suffix) and not name.startswith("."):
                yield Path(parent) / name
