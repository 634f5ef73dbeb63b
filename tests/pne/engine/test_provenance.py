"""What a result says of where it comes from, and the hash of the code that it names."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_runs import CONTRAST, scored, trained, write_run

from pne.engine import provenance, state
from pne.engine.processes import Processes
from pne.engine.provenance import Code, bare_lines, code_sha256, describe, git_state
from pne.train import main

SOURCE = '''"""What it is."""

def double(x):
    """Twice."""
    return 2 * x  # a comment
'''


def test_provenance_names_versions_device_and_the_code_that_it_is_given() -> None:
    code = Code("a" * 64, "commit", True)
    started = "2024-01-01T00:00:00+00:00"
    alone = Processes(0, 1, torch.device("cpu"))
    found = describe(alone, seed=3, dataset_fingerprint="f", started=started, code=code, micro_batch=4)
    assert found.versions["torch"] == torch.__version__
    assert set(found.versions) == {"python", "torch", "mmengine", "mmcv", "mmseg", "numpy"}
    assert found.device.startswith("cpu: ")
    assert found.ended.endswith("+00:00")
    assert (found.code_sha256, found.git_commit, found.git_dirty) == ("a" * 64, "commit", True)


@pytest.fixture
def tree(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package that stands for the code of this process and that a test may edit."""
    shutil.copytree(repository / "pne", tmp_path / "tree/pne", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(provenance, "running_code", lambda: Code(hash_of(tmp_path / "tree"), None, None))
    for module in ("session", "evaluation", "command"):
        monkeypatch.setattr(f"pne.engine.{module}.running_code", provenance.running_code)
    return tmp_path / "tree"


def hash_of(tree: Path) -> str:
    return code_sha256.__wrapped__(tree / "pne")  # read anew, not remembered


def edit(tree: Path) -> None:
    with (tree / "pne/losses/pne.py").open("a") as stream:
        stream.write(f"\nEDITED_{time.monotonic_ns()} = True\n")


@pytest.fixture
def at_checkpoint(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], None]:
    """Return a function that lets a given one be called with the iteration whenever a checkpoint is written."""
    save = state.TrainingState.save

    def call(act: Callable[[int], None]) -> None:
        def save_and_act(self: state.TrainingState, runner: object) -> None:
            save(self, runner)
            act(runner.iter)

        monkeypatch.setattr(state.TrainingState, "save", save_and_act)

    return call


def test_an_edit_during_training_changes_no_provenance(
    tmp_path: Path, data: Path, tree: Path, at_checkpoint: Callable
) -> None:
    spec = write_run(tmp_path, data, contrast=CONTRAST)
    before = hash_of(tree)
    at_checkpoint(lambda iteration: edit(tree))
    assert main([str(spec)]) == 0
    assert hash_of(tree) != before
    assert trained(spec).provenance.code_sha256 == before
    assert trained(spec).earlier_code_sha256 == []
    assert trained(spec).is_from(before)
    assert scored(spec).provenance.code_sha256 == before


def test_a_resumed_training_names_the_code_it_began_with(
    tmp_path: Path, data: Path, tree: Path, at_checkpoint: Callable, capsys: pytest.CaptureFixture
) -> None:
    spec = write_run(tmp_path, data, iterations=12, contrast=CONTRAST)

    def edit_and_stop(iteration: int) -> None:
        if iteration in (2, 6):
            edit(tree)  # the checkpoint that the signal brings about names the code that runs, too
            os.kill(os.getpid(), signal.SIGTERM)

    at_checkpoint(edit_and_stop)
    codes = []
    for status in (75, 75, 0):
        codes.append(hash_of(tree))
        assert main([str(spec)]) == status
    assert "the training code has changed since the checkpoint was written" in capsys.readouterr().err
    result = trained(spec)
    assert len(set(codes)) == 3
    assert (result.resumes, result.provenance.code_sha256, result.earlier_code_sha256) == (2, codes[2], codes[:2])
    assert not any(result.is_from(code) for code in codes)


def package(folder: Path, source: str = SOURCE, name: str = "a.py") -> Path:
    (folder / "losses").mkdir(parents=True, exist_ok=True)
    (folder / "losses" / name).write_text(source)
    return folder


def test_comments_docstrings_and_layout_do_not_count(tmp_path: Path) -> None:
    one = code_sha256(package(tmp_path / "one"))
    other = "def double(x):\n\n  # other words\n  return 2 * x\n"
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


def test_the_tokens_that_count_are_those_of_every_python() -> None:
    """Before Python 3.12 an f-string is one token, after it many; the layout of the source is of no account."""
    source = '''
"""A module."""

@decorated(
    1,  # one
    name="x",
)
class A:
    "Of one line."
    f"{side_effect()}"

    async def b(self, x: int) -> str:
        """Of more
        lines."""
        if x:
            return f"{x:>{width}} {'a' 'b'} {{}}" "c" rf'{x!r}'
        text = (
            """no docstring"""
        )
'''
    assert list(bare_lines(source)) == [
        [],
        ["@", "decorated", "(", "1", ",", "name", "=", '"x"', ",", ")", "<end>"],
        ["class", "A", ":", "<end>"],
        ["<in>"],
        ['f"{side_effect()}"', "<end>"],
        ["async", "def", "b", "(", "self", ",", "x", ":", "int", ")", "->", "str", ":", "<end>"],
        ["<in>"],
        ["if", "x", ":", "<end>"],
        ["<in>", "return", "f\"{x:>{width}} {'a' 'b'} {{}}\"", '"c"', "rf'{x!r}'", "<end>"],
        ["<out>", "text", "=", "(", '"""no docstring"""', ")", "<end>"],
        ["<out>", "<out>"],
    ]


def test_an_f_string_over_several_lines_is_one_token() -> None:
    text = "f'''{\na + f\"{b}\"}\n  end'''"
    assert list(bare_lines(f"x = {text}\ny = 1\n")) == [
        ["x", "=", text, "<end>"],
        ["y", "=", "1", "<end>"],
        [],
    ]
