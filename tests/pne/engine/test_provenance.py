"""The hash of the training code follows what the code does, and needs no torch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pne.engine.provenance import code_sha256, describe, git_state

SOURCE = '''"""What it is."""

def double(x):
    """Twice."""
    return 2 * x  # a comment
'''


def package(folder: Path, source: str = SOURCE, name: str = "a.py") -> Path:
    (folder / "losses").mkdir(parents=True, exist_ok=True)
    (folder / "losses" / name).write_text(source)
    return folder


def test_comments_docstrings_and_layout_do_not_count(tmp_path: Path) -> None:
    one = code_sha256(package(tmp_path / "one"))
    other = "def double(x):\n\n    # other words\n    return (2 * x)\n"
    assert one == code_sha256(package(tmp_path / "two", other))


@pytest.mark.parametrize("change", [("2 * x", "3 * x"), ("double", "twice"), ("(x)", "(x, y=1)")])
def test_code_counts(tmp_path: Path, change: tuple[str, str]) -> None:
    assert code_sha256(package(tmp_path / "one")) != code_sha256(package(tmp_path / "two", SOURCE.replace(*change)))


def test_names_of_files_count_and_other_folders_do_not(tmp_path: Path) -> None:
    one = code_sha256(package(tmp_path / "one"))
    assert one != code_sha256(package(tmp_path / "two", name="b.py"))
    three = package(tmp_path / "three")
    (three / "figures.py").write_text("x = 1\n")
    assert one == code_sha256(three)


def test_hash_of_the_package_needs_no_torch(repository: Path) -> None:
    code = "import sys; from pne.engine.provenance import code_sha256; print(code_sha256(), 'torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=repository, check=True)
    digest, torch_imported = told.stdout.split()
    assert digest == code_sha256()
    assert torch_imported == "False"


def test_outside_of_git_there_is_no_commit(tmp_path: Path) -> None:
    assert git_state(tmp_path) == (None, None)


def test_provenance_names_versions_and_device() -> None:
    found = describe(
        device=torch.device("cpu"),
        world_size=1,
        micro_batch=4,
        dataset_fingerprint="f",
        seed=3,
        started="2024-01-01T00:00:00+00:00",
    )
    assert found.versions["torch"] == torch.__version__
    assert set(found.versions) == {"python", "torch", "mmengine", "mmcv", "mmseg", "numpy"}
    assert found.device.startswith("cpu: ")
    assert found.ended.endswith("+00:00")
