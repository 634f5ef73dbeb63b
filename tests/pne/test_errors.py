"""What commands do with mistakes of the user and with a reader that has gone."""

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import draw_images, environment, write_run

from pne.errors import EXIT_BROKEN_PIPE, EXIT_USER_ERROR, UserError, reports_user_errors


def test_an_error_of_the_user_is_a_line_and_a_status(capsys: pytest.CaptureFixture) -> None:
    @reports_user_errors
    def main() -> None:
        raise UserError("a.yaml: no such key")

    assert main() == EXIT_USER_ERROR
    assert capsys.readouterr().err == "error: a.yaml: no such key\n"


def test_a_broken_pipe_of_another_kind_is_not_hidden() -> None:
    @reports_user_errors
    def main() -> None:
        raise BrokenPipeError("of a worker")

    with pytest.raises(BrokenPipeError):
        main()


def unread(folder: Path, *arguments: object, buffered: bool = True) -> tuple[int, str]:
    """Run a command whose output nobody reads; return its status and what it says on standard error."""
    settings = environment() | {"PYTHONUNBUFFERED": "" if buffered else "1"}
    command, pipe = [sys.executable, "-m", *map(str, arguments)], subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=settings, stdout=pipe, stderr=pipe, text=True) as process:
        process.stdout.close()
        told = process.stderr.read()
        return process.wait(timeout=120), told


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [
        ("analysis.status",),
        ("analysis.plan",),
        ("analysis.runs",),
        ("analysis.help",),
        ("pne.spec", "check", "--track", "quick"),
    ],
    ids=" ".join,
)
def test_a_reader_that_has_gone_ends_a_command_quietly(
    repository: Path, arguments: tuple[str, ...], buffered: bool
) -> None:
    assert unread(repository, *arguments, buffered=buffered) == (EXIT_BROKEN_PIPE, "")


def test_a_reader_of_help_may_go(repository: Path) -> None:
    assert unread(repository, "analysis.status", "--help") == (EXIT_BROKEN_PIPE, "")


def test_a_training_whose_reader_has_gone_ends_without_a_traceback(tmp_path: Path) -> None:
    spec = write_run(tmp_path, draw_images(tmp_path / "data/camvid"))
    status, told = unread(tmp_path, "pne.train", spec)
    assert status == EXIT_BROKEN_PIPE
    assert "Traceback" not in told
    assert not (spec.parent / "train.json").exists()
