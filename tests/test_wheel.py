"""The plug-in as its users take it: a wheel, installed in a clean environment, and the config of the README."""

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


@pytest.fixture(scope="module")
def python(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a new environment that holds the wheel of this checkout with what ``pne[mmseg]`` asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pne", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (repository / name).is_dir() else shutil.copy
        copy(repository / name, folder / "checkout" / name if name == "pne" else folder / "checkout")
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment/bin/python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, folder / "checkout"])
    (wheel,) = folder.glob("*.whl")
    run([*pip, "install", "-c", repository / "constraints.txt", f"{wheel}[mmseg]"])
    if run([python, "-c", "import cv2"], check=False):  # no desktop's OpenGL: as make setup does
        version = run([python, "-c", "from importlib.metadata import version; print(version('opencv-python'))"])
        run([*pip, "install", "--no-deps", "--force-reinstall", f"opencv-python-headless=={version.strip()}"])
    return python


def run(command: list[object], check: bool = True) -> str:
    """Run a command outside of the checkout; return what it prints, without ``check`` an empty text if it ends well."""
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd="/", env=environment, check=False
    )
    if check:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout
    return done.stderr if done.returncode else ""


def test_the_plug_in_does_what_the_readme_says(python: Path, repository: Path, tmp_path: Path) -> None:
    example = shutil.copy(repository / "examples/deeplabv3_contrast.py", tmp_path)
    script = shutil.copy(repository / "tests/plug_in.py", tmp_path)
    assert run([python, script, example, tmp_path]).splitlines()[-1] == "as the README says"
