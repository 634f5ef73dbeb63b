"""Checkpoint files: equal content gives equal bytes; broken ones are passed over; a full disk is told."""

import resource
from pathlib import Path

import pytest
import torch

from pne.engine import checkpoint
from pne.errors import UserError
from pne.files import sha256


def content(value: float = 1.0) -> dict:
    return {"weights": torch.full((100, 100), value), "iteration": 7, "nested": {"list": [1, 2.5, "text", None]}}


def test_content_gives_equal_bytes_under_any_name_and_is_read_as_written(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.pth", "another_name.pth", "of_other_content.pth")]
    for path, value in zip(paths, (1.0, 1.0, 2.0), strict=True):
        checkpoint.save(path, content(value))
    one, same, other = map(sha256, paths)
    assert one == same != other
    read = checkpoint.load(paths[0])
    assert torch.equal(read.pop("weights"), content()["weights"])
    assert read == {key: value for key, value in content().items() if key != "weights"}


@pytest.mark.parametrize("harm", ["truncated", "empty", "flipped byte", "code, which is not executed"])
def test_a_broken_checkpoint_is_told(tmp_path: Path, harm: str) -> None:
    path = checkpoint.path_of(tmp_path, 10)
    torch.save({"weights": pytest.importorskip}, path)
    if not harm.startswith("code"):
        checkpoint.save(path, content())
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data[: {"truncated": len(data) // 2, "empty": 0}.get(harm)])
    with pytest.raises(UserError, match=r"iter_10\.pth: not a whole checkpoint"):
        checkpoint.load(path)


def test_the_newest_two_are_kept_by_number_not_by_name(tmp_path: Path) -> None:
    for iteration in (2, 9, 10, 100):
        for rank in (0, 1):
            checkpoint.path_of(tmp_path, iteration, rank).touch()
    for name in ("iter_50.rank1.pth", "final.pth"):  # the first by a process that died
        (tmp_path / name).touch()
    assert checkpoint.iterations(tmp_path) == [100, 10, 9, 2]
    checkpoint.prune(tmp_path)
    kept = {"iter_100.pth", "iter_100.rank1.pth", "iter_10.pth", "iter_10.rank1.pth", "final.pth"}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "iter_1.pth"
    checkpoint.save(path, content())
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # as if the disk were full
    try:
        with pytest.raises(UserError, match=r"iter_1\.pth: cannot be written \(.+\); free space"):
            checkpoint.save(path, content(2.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["iter_1.pth"]
