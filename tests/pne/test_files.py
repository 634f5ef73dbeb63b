"""A reader never sees half a file, whatever happens to the writer."""

import errno
import os
import stat
from pathlib import Path

import pytest

from pne.errors import UserError
from pne.files import write_text, written_aside


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail_writing(path: Path, error: Exception) -> None:
    with written_aside(path) as aside:
        aside.write_text("half")
        raise error


def test_writes_into_new_folders_and_replaces(tmp_path):
    path = tmp_path / "a" / "b" / "result.json"
    write_text(path, "one")
    write_text(path, "zwei µ")
    assert path.read_text(encoding="utf-8") == "zwei µ"
    assert names(path.parent) == ["result.json"]


def test_the_mode_follows_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "x", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (KeyError("writer"), KeyError, "writer"),
        (OSError(errno.ENOSPC, "No space"), UserError, r"result\.json: cannot be written \(No space\).*free space"),
    ],
)
def test_a_failed_writer_leaves_the_old_file_and_no_other(tmp_path, error, kind, message):
    path = tmp_path / "result.json"
    write_text(path, "old")
    with pytest.raises(kind, match=message):
        fail_writing(path, error)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["result.json"]


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_text(tmp_path / "file" / "x", "")


def test_the_suffix_is_kept_for_writers_that_look_at_it(tmp_path):
    with written_aside(tmp_path / "a.npz") as aside:
        assert aside.suffix == ".npz"
        assert aside.parent == Path(tmp_path)
