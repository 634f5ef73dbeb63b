"""Names and hashes of every run of every track stay as they are: results that exist stay valid."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pne.spec import load_track

TRACKS = sorted(path.stem for path in Path(__file__).parents[2].glob("experiments/tracks/*.yaml"))
SEEDS = {"default": None, "0,1": (0, 1)}


@pytest.mark.parametrize("track", TRACKS)
def test_runs_keep_their_identity(
    track: str, repository: Path, golden: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    found = {}
    for name, seeds in SEEDS.items():
        runs = load_track(track, seeds=seeds).runs
        [version] = {run.spec_version for run in runs.values()}
        about = {"spec_version": version, "runs": {key: run.config_sha256 for key, run in runs.items()}}
        found[f"seeds_{name}.json"] = json.dumps(about, indent=1) + "\n"
    golden(f"runs/{track}", found)
