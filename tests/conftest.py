"""What every test may use: real data and oracles beside the repository, golden files, commands, one thread."""

import difflib
import os
import re
import runpy
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run: a failure can be repeated, and none comes by chance.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("PNE_SHARED", REPOSITORY.parent / "shared"))
GOLDEN = REPOSITORY / "tests" / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes golden files anew."""
    parser.addoption("--renew-goldens", action="store_true", help="write tests/golden anew from what the tests find")


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


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, Mapping[str, str]], None]:
    """Return a function that compares texts with all files of a folder below ``tests/golden``, byte by byte.

    Only numbers that are written unrounded are compared to 8 decimals: the last digits differ between kinds of CPU.

    With ``--renew-goldens`` it writes them instead. That is allowed only for a change that is meant to alter these very
    numbers or words and says so in the changelog; never to make a restructuring pass.
    """

    def check(name: str, found: Mapping[str, str]) -> None:
        folder = GOLDEN / name
        found = {file: re.sub(r"-?\d+\.\d{9,}(e-?\d+)?", _to_8_decimals, text) for file, text in found.items()}
        if request.config.getoption("--renew-goldens"):
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                path.unlink()
            for file, text in found.items():
                (folder / file).write_bytes(text.encode())
        expected = {path.name: path.read_bytes().decode() for path in folder.glob("*")}
        assert sorted(found) == sorted(expected), f"files of {folder}"
        for file, text in expected.items():
            if found[file] != text:
                lines = text.splitlines(), found[file].splitlines()
                difference = "\n".join(list(difflib.unified_diff(*lines, "golden", "found", lineterm="", n=0))[:20])
                pytest.fail(f"{folder / file} differs from what is found:\n{difference or 'ends of lines'}")

    return check


def _to_8_decimals(number: re.Match) -> str:
    return f"{round(float(number[0]), 8) + 0.0!r}"  # no negative zero


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that runs ``python -m <module> <arguments>`` in the root of the checkout, in this process."""

    def run(module: str, *arguments: object) -> None:
        monkeypatch.chdir(REPOSITORY)
        monkeypatch.setattr(sys, "argv", [module, *map(str, arguments)])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)
            try:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            except SystemExit as end:
                if end.code:
                    pytest.fail(f"{module} ends with {end.code}")

    return run


@pytest.fixture(autouse=True)
def _one_thread(request: pytest.FixtureRequest) -> None:
    """Small tensors compute faster on one thread, and workers of pytest-xdist do not fight for cores."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip `gpu` tests without a CUDA device and `slow` tests unless they are selected by `-m`."""
    selected = config.getoption("-m")
    for item in items:
        if item.get_closest_marker("slow") and "slow" not in selected:
            item.add_marker(pytest.mark.skip(reason="slow: run by its own make target"))
        if item.get_closest_marker("gpu"):  # keywords hold the names of folders, too
            import torch

            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
