"""The benchmark of the loader times every way on the same samples."""

import json
import runpy
from pathlib import Path

import pytest
from tiny_runs import draw_images


def test_every_way_is_timed(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    data, output = draw_images(tmp_path / "camvid", train=3, test=1), tmp_path / "loader.jsonl"
    main = runpy.run_path(str(repository / "benchmarks/loader.py"))["main"]
    config = repository / "experiments/datasets/camvid.py"
    command = ["--config", config, "--data-root", data, "--samples", 4, "--rounds", 2, "--output", output]
    main([str(word) for word in command])
    lines = {line["way"]: line for line in map(json.loads, output.read_text().splitlines())}
    assert list(lines) == ["mmseg", "mmseg cached", "pne", "pne cached"]
    assert lines["mmseg"]["ratio"] == 1 == lines["mmseg cached"]["ratio_cached"]
    assert all(line["samples_per_second_and_core"] > 0 for line in lines.values())
    assert "samples/s/core" in capsys.readouterr().out
