"""The benchmark of multi-scale evaluation compares what it says: equal predictions, both ways timed."""

import json
import runpy
from pathlib import Path

import pytest
from tiny_runs import draw_images, plain_head, write_run

RESIZE = {"type": "Resize", "scale": (48, 32), "keep_ratio": True}
STEPS = [{"type": "LoadImageFromFile"}, RESIZE, {"type": "LoadAnnotations"}, {"type": "PackSegInputs"}]
PLAIN = {key: value for key, value in plain_head().items() if key not in ("num_convs", "concat_input")}
ENCODING = {
    "_delete_": True,
    **PLAIN,
    "type": "EncHead",
    "in_channels": [16, 32, 64],
    "in_index": (1, 2, 3),
    "num_codes": 4,
}
CASCADE = {
    "model.type": "CascadeEncoderDecoder",
    "model.num_stages": 2,
    "model.decode_head": [plain_head(), {**PLAIN, "type": "OCRHead", "ocr_channels": 8}],
}


CHANGES = {
    "own size": {},
    "resized": {"test_dataloader.dataset.pipeline": STEPS},
    "several outputs": {"model.decode_head": ENCODING},
    "several heads": CASCADE,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_both_ways_score_the_same(
    change: dict, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    spec = write_run(tmp_path, draw_images(tmp_path / "camvid", train=1, test=4), change=change)
    output = tmp_path / "evaluation.jsonl"
    command = ["--spec", spec, "--untrained", "--images", 3, "--rounds", 1, "--device", "cpu", "--output", output]
    runpy.run_path(str(repository / "benchmarks/evaluation.py"))["main"]([str(word) for word in command])
    lines = {line["way"]: line for line in map(json.loads, output.read_text().splitlines())}
    assert list(lines) == ["mmseg", "pne", "pne bfloat16"]
    assert lines["pne"]["largest_iou_difference"] <= 0.05
    if change is not CASCADE:
        assert lines["pne"]["miou"] > 1  # several classes are predicted somewhere
        assert 0 < lines["pne bfloat16"]["largest_iou_difference"] < 20
    assert all(line["s_per_image"] > 0 and line["images"] == 3 for line in lines.values())
    assert "times faster" in capsys.readouterr().out
