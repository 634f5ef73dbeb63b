"""Names and hashes of every run of every track stay as they are: results that exist stay valid."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pne.spec import load_track

TRACKS = ("quick", "camvid_tiny", "camvid_small", "camvid_small_tuning", "camvid_short", "camvid", "paper")
SEEDS = {"default": None, "0,1": (0, 1)}


def test_no_track_is_left_out(repository: Path) -> None:
    assert sorted(TRACKS) == sorted(path.stem for path in (repository / "experiments" / "tracks").glob("*.yaml"))


@pytest.mark.parametrize("track", TRACKS)
def test_runs_keep_their_identity(
    track: str, repository: Path, golden: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    found = {}
    for name, seeds in SEEDS.items():
        runs = load_track(track, seeds=seeds).runs
        versions = {run.spec_version for run in runs.values()}
        about = {"spec_version": versions.pop(), "runs": {key: run.config_sha256 for key, run in runs.items()}}
        assert not versions
        found[f"seeds_{name}.json"] = json.dumps(about, indent=1) + "\n"
    golden(f"runs/{track}", found)
