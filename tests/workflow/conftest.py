"""Copies of the project for tests of the workflow."""

import contextlib
from pathlib import Path

import pytest
from checkout import Checkout
from finished import draw_track, finish_track, give_receipts


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A copy of the project without any result."""
    return Checkout(tmp_path / "checkout")


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of the project that no test changes."""
    return Checkout(tmp_path_factory.mktemp("pristine") / "checkout")


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of the project with results of every run of the quick track, and all its tables."""
    checkout = Checkout(tmp_path_factory.mktemp("finished") / "checkout")
    with contextlib.chdir(checkout.folder):
        finish_track()
        give_receipts(checkout, "tables")
    return checkout


@pytest.fixture
def finished(finished_once: Checkout, tmp_path: Path) -> Checkout:
    """A finished quick track of the test's own."""
    return finished_once.copy(tmp_path / "checkout")


@pytest.fixture(scope="session")
def drawn_once(finished_once: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The finished track with all its figures, claims and pages of the report."""
    checkout = finished_once.copy(tmp_path_factory.mktemp("drawn") / "checkout")
    with contextlib.chdir(checkout.folder):
        draw_track()
        give_receipts(checkout, "figures", "claims", "report_pages")
    return checkout


@pytest.fixture
def drawn(drawn_once: Checkout, tmp_path: Path) -> Checkout:
    """A drawn quick track of the test's own."""
    return drawn_once.copy(tmp_path / "checkout")
