"""Fixtures of the data set tests: a private cache, and a folder that may be harmed."""

import shutil
import sys
from pathlib import Path

import pytest
from mmengine.registry import init_default_scope

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the drawn data that other tests use too


@pytest.fixture(autouse=True)
def _private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep label caches of the tests out of the home folder and apart from each other."""
    monkeypatch.setenv("PNE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _mmseg_scope() -> None:
    """Look names of transforms up in mmsegmentation's registries, as a Runner does."""
    init_default_scope("mmseg")


@pytest.fixture
def tiny(shared, tmp_path) -> Path:
    """A copy of a small part of CamVid that a test may harm."""
    return shutil.copytree(shared / "data/camvid_tiny", tmp_path / "camvid", copy_function=shutil.copyfile)
