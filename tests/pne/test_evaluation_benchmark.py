"""The benchmark of multi-scale evaluation compares what it says: equal predictions, both ways timed."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import draw_images, plain_head, write_run

RESIZE = {"type": "Resize", "scale": (48, 32), "keep_ratio": True}


@pytest.fixture
def measure(repository: Path, tmp_path: Path) -> Callable[[dict], dict[str, dict]]:
    """Return a function that runs the benchmark on three images of a config with changes; its lines by way."""

    def run(change: dict) -> dict[str, dict]:
        spec = write_run(tmp_path, draw_images(tmp_path / "camvid", train=1, test=4), change=change)
        output = tmp_path / "evaluation.jsonl"
        command = ["--spec", spec, "--untrained", "--images", 3, "--rounds", 1, "--device", "cpu", "--output", output]
        runpy.run_path(str(repository / "benchmarks/evaluation.py"))["main"]([str(word) for word in command])
        return {line["way"]: line for line in map(json.loads, output.read_text().splitlines())}

    return run


@pytest.mark.parametrize("resized", [False, True], ids=["own size", "resized"])
def test_both_ways_score_the_same(measure: Callable, resized: bool, capsys: pytest.CaptureFixture) -> None:
    pipeline = [{"type": "LoadImageFromFile"}, *[RESIZE] * resized, {"type": "LoadAnnotations"}]
    lines = measure({"test_dataloader.dataset.pipeline": [*pipeline, {"type": "PackSegInputs"}]})
    assert list(lines) == ["mmseg", "pne", "pne bfloat16"]
    assert lines["pne"]["largest_iou_difference"] <= 0.05
    assert lines["pne"]["miou"] > 1  # several classes are predicted somewhere
    assert 0 < lines["pne bfloat16"]["largest_iou_difference"] < 20
    assert all(line["s_per_image"] > 0 and line["images"] == 3 for line in lines.values())
    assert "times faster" in capsys.readouterr().out


PLAIN = {key: value for key, value in plain_head().items() if key not in ("num_convs", "concat_input")}
ENCODING = {
    "_delete_": True,
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
def test_models_of_other_heads_are_measured(measure: Callable, change: dict) -> None:
    assert measure(change)["pne"]["largest_iou_difference"] <= 0.05
