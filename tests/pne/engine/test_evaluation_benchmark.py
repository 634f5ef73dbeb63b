"""The benchmark of evaluation runs, and both ways give the same scores."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CPU = ("--device", "cpu")


def run(repository: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "benchmarks/evaluation.py", *CPU, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=repository, timeout=200, check=False)


@pytest.fixture(scope="module")
def lines(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    out = tmp_path_factory.mktemp("benchmark") / "evaluation.jsonl"
    told = run(repository, "--tiny", "--out", str(out))
    assert told.returncode == 0, told.stderr
    return {line["variant"]: line for line in map(json.loads, out.read_text().splitlines())}


def test_both_ways_give_the_same_class_iou(lines: dict[str, dict]) -> None:
    assert lines["ours"]["largest_iou_difference"] <= 0.05
    assert lines["mmseg"]["classes_predicted"] > 5  # otherwise equal scores would say little


def test_every_line_says_what_was_measured_and_where(lines: dict[str, dict]) -> None:
    assert list(lines) == ["mmseg", "ours", "ours_bfloat16"]
    for line in lines.values():
        assert line["device"].startswith("cpu: ")
        assert (line["images"], line["size"]) == (3, [64, 128])
        assert line["speedup"] == pytest.approx(lines["mmseg"]["time_s"] / line["time_s"])


def test_one_image_is_no_measurement(repository: Path) -> None:
    told = run(repository, "--images", "1")
    assert told.returncode == 2
    assert "--images: at least 2" in told.stderr
