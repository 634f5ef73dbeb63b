"""The hash of the training code follows what the code does, is the same under every Python, and needs no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from pne.engine.provenance import bare_lines, code_sha256, git_state

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
