"""What every test may use: the folder of real data and oracles beside the repository, one thread, a place to train."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run: a failure can be repeated, and none comes by chance.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("PNE_SHARED", REPOSITORY.parent / "shared"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of real data and numeric oracles; tests that need it skip, with the reason, only where it is absent."""
    if not SHARED.is_dir():
        if "PNE_SHARED" in os.environ:
            pytest.fail(f"PNE_SHARED names {SHARED}, which is no folder")
        pytest.skip(f"no folder {SHARED} (set PNE_SHARED to the folder with data/ and oracles/)")
    return SHARED


@pytest.fixture(autouse=True)
def _one_thread(request: pytest.FixtureRequest) -> None:
    """Small tensors compute faster on one thread, and workers of pytest-xdist do not fight for cores."""
    import sys

    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip `gpu` tests without a CUDA device and `slow` tests unless they are selected by `-m`."""
    selected = config.getoption("-m")
    for item in items:
        if "slow" in item.keywords and "slow" not in selected:
            item.add_marker(pytest.mark.skip(reason="slow: run by its own make target"))
        if "gpu" in item.keywords:
            import torch

            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
