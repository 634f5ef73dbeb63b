"""Copies of the project for tests of the workflow."""

import contextlib
from pathlib import Path

import pytest
from checkout import Checkout
from finished import finish_track, write_embedding


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A copy of the project without any result."""
    return Checkout(tmp_path / "checkout")


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of the project with results of every run of the quick track, and all its tables."""
    checkout = Checkout(tmp_path_factory.mktemp("finished") / "checkout")
    with contextlib.chdir(checkout.folder):
        finish_track()
        write_embedding()
    checkout.snakemake("--cores", "2")
    return checkout


@pytest.fixture
def finished(finished_once: Checkout, tmp_path: Path) -> Checkout:
    """A finished quick track of the test's own."""
    return finished_once.copy(tmp_path / "checkout")
