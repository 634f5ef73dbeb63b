"""What a result says of where it comes from, and the hash of the code that it names."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import CONTRAST, scored, trained, write_run

from pne.engine import provenance, state
from pne.engine.provenance import Code, code_sha256, git_state
from pne.spec import Run, read_spec
from pne.spec.identity import NUMERICS
from pne.train import main

PNE_OF_RUN = {"loss": "PNELoss", "options": {}}


def test_provenance_names_what_computed(finished: Mapping[str, Path]) -> None:
    result, code = trained(finished["pne"]), code_sha256(read_spec(finished["pne"]))
    found = result.provenance
    assert found.versions["torch"] == torch.__version__
    assert set(found.versions) == {"python", "torch", "mmengine", "mmcv", "mmseg", "numpy"}
    assert found.device == f"cpu: {found.cpu}"
    assert (found.threads, found.seed, found.micro_batch, found.numerics) == (1, 0, 2, NUMERICS)
    assert found.started <= found.ended
    assert found.ended.endswith("+00:00")
    assert (found.code_sha256, found.git_commit, found.git_dirty) == (code, *git_state())
    assert result.is_from(code)


@pytest.fixture
def tree(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package that stands for the code of this process and that a test may edit."""
    shutil.copytree(repository / "pne", tmp_path / "tree/pne", ignore=shutil.ignore_patterns("__pycache__"))
    for module in ("session", "evaluation", "command"):
        code = lambda run: Code(hash_of(tmp_path / "tree", run.contrast), None, None)  # noqa: E731
        monkeypatch.setattr(f"pne.engine.{module}.running_code", code)
    return tmp_path / "tree"


def hash_of(tree: Path, contrast: dict[str, Any] | None = PNE_OF_RUN) -> str:
    """Read anew, not remembered."""
    provenance.read_module.cache_clear()
    provenance._hash.cache_clear()
    return code_sha256(Run.model_construct(contrast=contrast), tree / "pne")


def edit(tree: Path) -> None:
    with (tree / "pne/losses/pne.py").open("a") as stream:
        stream.write(f"\nEDITED_{time.monotonic_ns()} = True\n")


def test_a_training_names_the_code_it_began_with_whatever_is_edited_meanwhile(
    tmp_path: Path, data: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    save = state.TrainingState.save

    def save_and_edit(self: state.TrainingState, runner: Any) -> None:
        save(self, runner)
        edit(tree)  # the checkpoint that the signal brings about names the code that runs, too
        if runner.iter in (2, 6):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(state.TrainingState, "save", save_and_edit)
    spec = write_run(tmp_path, data, iterations=12, contrast=CONTRAST)
    codes = []
    for status in (75, 75, 0):
        codes.append(hash_of(tree))
        assert main([str(spec)]) == status
    assert "the training code has changed since the checkpoint was written" in capsys.readouterr().err
    result = trained(spec)
    assert len({*codes, hash_of(tree)}) == 4
    assert (result.resumes, result.provenance.code_sha256, result.earlier_code_sha256) == (2, codes[2], codes[:2])
    assert scored(spec).provenance.code_sha256 == codes[2]
    assert not any(result.is_from(code) for code in codes)


LOSSES = {
    "base": None,
    "pne": PNE_OF_RUN,
    "temperature": {"loss": "PNELoss", "options": {"temperature": 0.1}},
    "asymmetric": {"loss": "AsymmetricContrastLoss", "options": {}},
    "cipc": {"loss": "PixelContrastLoss", "options": {}},
}
APPENDED = "\nADDED = True\n"
PNE_ALONE, ALL = {"pne", "temperature"}, set(LOSSES)


def hashes(tree: Path) -> set[tuple[str, str]]:
    return {(name, hash_of(tree, contrast)) for name, contrast in LOSSES.items()}


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("losses/pne.py", "", APPENDED, PNE_ALONE),
        ("losses/asymmetric.py", "", APPENDED, {"asymmetric"}),
        ("losses/pixel_contrast.py", "", APPENDED, {"cipc"}),
        ("losses/pairs.py", "", APPENDED, {*PNE_ALONE, "asymmetric"}),
        ("losses/base.py", "", APPENDED, ALL - {"base"}),
        ("losses/__init__.py", "__all__ =", "from pne.losses.own import Own\n\n__all__ =", set()),
        ("engine/state.py", "torch.manual_seed(mixed)", "torch.manual_seed(mixed + 1)", ALL),
        ("engine/session.py", "iterations, batch {run.batch_size}", "steps, batch {run.batch_size}", set()),
        ("engine/evaluation.py", "check how the labels were converted", "check the labels", set()),
        ("engine/evaluation.py", "BOUNDARY = 3", "BOUNDARY = 4", ALL),
        ("engine/trial.py", "IMAGES = ", "IMAGES = 1 + ", set()),
        ("datasets/doctor.py", "def main(", "def changed(", set()),
        ("datasets/fingerprint.py", "CACHE_VERSION = 1", "CACHE_VERSION = 2", set()),
        ("datasets/layouts.yaml", "image_suffix: ", "image_suffix: x", ALL),
        ("console.py", "warning: ", "mind: ", set()),
        ("spec/compose.py", "def _plain_norm", "def _plain_norms", set()),
        ("spec/compose.py", '"cudnn_benchmark": True', '"cudnn_benchmark": False', ALL),
        ("spec/identity.py", '"tf32_products": False', '"tf32_products": True', ALL),
        ("train.py", "help=", "help='Really: ' + ", set()),
    ],
)
def test_a_change_makes_those_runs_stale_whose_numbers_it_can_change(
    tree: Path, file: str, old: str, new: str, expected: set[str]
) -> None:
    before, path = hashes(tree), tree / "pne" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new) if old else path.read_text() + new)
    assert dict(hashes(tree) - before).keys() == expected


def test_a_changed_default_counts_where_it_holds(monkeypatch: pytest.MonkeyPatch, tree: Path) -> None:
    before, resolve = hashes(tree), provenance.resolve_options
    monkeypatch.setattr(
        provenance,
        "resolve_options",
        lambda loss, options: resolve(loss, options) | ({} if "temperature" in options else {"temperature": 0.5}),
    )
    assert dict(hashes(tree) - before).keys() == {"pne", "asymmetric", "cipc"}


def test_a_loss_of_ones_own_counts_by_its_content(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_of_test.py").write_text("class Own: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    contrast = {"loss": "own_of_test:Own", "options": {}}
    before = hash_of(tree, contrast)
    (tmp_path / "own_of_test.py").write_text("class Own:  # the same\n    ...\n")
    assert hash_of(tree, contrast) == before
    (tmp_path / "own_of_test.py").write_text("class Own:\n    x = 1\n")
    assert hash_of(tree, contrast) != before


def test_moving_and_rewording_code_changes_nothing(tree: Path) -> None:
    before = hash_of(tree)
    losses = tree / "pne/losses"
    losses.joinpath("similarity.py").rename(losses / "cosines.py")
    for path in losses.glob("*.py"):
        path.write_text(path.read_text().replace("pne.losses.similarity", "pne.losses.cosines"))
    path = losses / "pne.py"
    path.write_text(f'"""Other words."""  # a comment\n\n\n{path.read_text().partition(chr(10))[2]}')
    assert hash_of(tree) == before


def test_every_exclusion_is_a_file_of_the_package() -> None:
    assert all((provenance.PACKAGE / name).exists() for name in provenance.EXCLUDED)


def test_hash_of_the_package_needs_no_torch(repository: Path) -> None:
    code = (
        "import sys; from pne.engine.provenance import code_sha256; from pne.spec import Run; "
        f"print(code_sha256(Run.model_construct(contrast={PNE_OF_RUN})), 'torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=repository, check=True)
    assert told.stdout.split() == [code_sha256(Run.model_construct(contrast=PNE_OF_RUN)), "False"]


def test_outside_of_git_there_is_no_commit(tmp_path: Path) -> None:
    assert git_state(tmp_path) == (None, None)
