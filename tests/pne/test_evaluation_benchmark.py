"""The benchmark of multi-scale evaluation compares what it says: equal predictions, both ways timed."""

import json
import runpy
from pathlib import Path

import pytest
from tiny_runs import draw_images, plain_head, write_run

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


PLAIN = {key: value for key, value in plain_head().items() if key not in ("num_convs", "concat_input")}
ENCODING = {
    **PLAIN,
    "type": "EncHead",
    "in_channels": [16, 32, 64],
    "in_index": (1, 2, 3),
    "num_codes": 4,
    "use_se_loss": True,
    "add_lateral": False,
    "loss_se_decode": {"type": "CrossEntropyLoss", "use_sigmoid": True, "loss_weight": 0.2},
}
CASCADE = {
    "model.type": "CascadeEncoderDecoder",
    "model.num_stages": 2,
    "model.decode_head": [plain_head(), {**PLAIN, "type": "OCRHead", "ocr_channels": 8}],
}


@pytest.mark.parametrize("change", [{"model.decode_head": ENCODING}, CASCADE], ids=["several outputs", "several heads"])
def test_models_of_other_heads_are_measured(repository: Path, tmp_path: Path, change: dict) -> None:
    spec = write_run(tmp_path, draw_images(tmp_path / "camvid", train=1, test=2), change=change)
    main = runpy.run_path(str(repository / "benchmarks/evaluation.py"))["main"]
    output = tmp_path / "evaluation.jsonl"
    command = ["--spec", spec, "--untrained", "--images", 2, "--rounds", 1, "--device", "cpu", "--output", output]
    main([str(word) for word in command])
    lines = {line["way"]: line for line in map(json.loads, output.read_text().splitlines())}
    assert lines["pne"]["largest_iou_difference"] <= 0.05
