"""Fixtures of the data set tests: a private cache, and a small SyntheticStreet folder drawn once."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mmengine.registry import init_default_scope

from pne.datasets.layouts import LAYOUTS, Split
from pne.datasets.synthetic_street.__main__ import write

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the drawn data that other tests use too


@pytest.fixture(autouse=True)
def _private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep label caches of the tests out of the home folder and apart from each other."""
    monkeypatch.setenv("PNE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def street(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``street_city`` on disk; tests that change it copy it first."""
    folder = tmp_path_factory.mktemp("street") / "street_city"
    assert write("street_city", folder)
    return folder


@pytest.fixture(autouse=True)
def _mmseg_scope() -> None:
    """Look names of transforms up in mmsegmentation's registries, as a Runner does."""
    init_default_scope("mmseg")


@pytest.fixture
def state_counts(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[str, Split], int]], None]:
    """Return a function that states other official numbers of images for the splits of a data set."""

    def state(dataset: str, count: Callable[[str, Split], int]) -> None:
        known = LAYOUTS[dataset]
        splits = {name: replace(split, count=count(name, split)) for name, split in known.splits.items()}
        monkeypatch.setitem(LAYOUTS, dataset, replace(known, splits=splits))

    return state


@pytest.fixture
def tiny(shared, tmp_path) -> Path:
    """A copy of a small part of CamVid that a test may harm."""
    return shutil.copytree(shared / "data/camvid_tiny", tmp_path / "camvid", copy_function=shutil.copyfile)
