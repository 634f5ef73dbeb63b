"""The benchmark of multi-scale evaluation compares what it says: equal predictions, both ways timed."""

import json
import runpy
from pathlib import Path

import pytest
from tiny_runs import draw_images, write_run

RESIZE = {"type": "Resize", "scale": (48, 32), "keep_ratio": True}


@pytest.mark.parametrize("resized", [False, True], ids=["own size", "resized"])
def test_both_ways_score_the_same(
    repository: Path, tmp_path: Path, resized: bool, capsys: pytest.CaptureFixture
) -> None:
    data = draw_images(tmp_path / "camvid", train=1, test=4)
    pipeline = [{"type": "LoadImageFromFile"}, *[RESIZE] * resized, {"type": "LoadAnnotations"}]
    change = {"test_dataloader.dataset.pipeline": [*pipeline, {"type": "PackSegInputs"}]}
    spec = write_run(tmp_path, data, change=change)
    output = tmp_path / "evaluation.jsonl"
    main = runpy.run_path(str(repository / "benchmarks/evaluation.py"))["main"]
    command = ["--spec", spec, "--untrained", "--images", 3, "--rounds", 1, "--device", "cpu", "--output", output]
    main([str(word) for word in command])
    lines = {line["way"]: line for line in map(json.loads, output.read_text().splitlines())}
    assert list(lines) == ["mmseg", "pne", "pne bfloat16"]
    assert lines["pne"]["largest_iou_difference"] <= 0.05
    assert lines["pne"]["miou"] > 1  # several classes are predicted somewhere
    assert 0 < lines["pne bfloat16"]["largest_iou_difference"] < 20
    assert all(line["s_per_image"] > 0 and line["images"] == 3 for line in lines.values())
    assert "times faster" in capsys.readouterr().out
