"""Rows of the studies that no other table has train; a branch with weight 0 leaves the plain model as it is."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pne.results import TrainResult, read_result
from pne.spec import load_track, write_spec
from pne.train import main


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn street scenes."""
    from pne.datasets.synthetic_street.__main__ import main as draw

    folder = tmp_path_factory.mktemp("data")
    draw(["--variant", "street_city", "--out", str(folder / "street_city")])
    return folder


@pytest.fixture
def train(repository: Path, data: Path, tmp_path: Path) -> Callable[..., list[Path]]:
    """Return a function that trains rows of quick, named as ``table.row``, and returns their folders."""

    def run(iterations: int, *places: str) -> list[Path]:
        options = {"data_root": data, "results": tmp_path, "iterations": iterations, "limit": 8, "studies": True}
        track = load_track("quick", experiments=repository / "experiments", **options)
        names = [track.tables[table].rows[row].runs[0] for table, row in (place.split(".") for place in places)]
        specs = [write_spec(track.runs[name], track.config(name)) for name in names]
        assert main([str(spec) for spec in specs]) == 0
        return [spec.parent for spec in specs]

    return run


def weights_sha256(folder: Path) -> str:
    """Hash the final weights of the plain model."""
    state = torch.load(folder.parents[1] / "work" / folder.name / "final.pth", weights_only=True)
    plain = {name: value for name, value in state.get("state_dict", state).items() if ".contrast." not in name}
    text = b"".join(name.encode() + value.numpy().tobytes() for name, value in sorted(plain.items()))
    return hashlib.sha256(text).hexdigest()


def test_a_branch_with_weight_0_is_cross_entropy_bit_by_bit(train: Callable) -> None:
    base, weightless, contrast = train(10, "controls.base", "controls.weight_0", "controls.pne")
    assert weights_sha256(base) == weights_sha256(weightless) != weights_sha256(contrast)
    scores = [json.loads((folder / "single_scale.json").read_text())["class_iou"] for folder in (base, weightless)]
    assert scores[0] == scores[1]
    assert read_result(weightless / "train.json", TrainResult).contrast.final_statistics["gradient_norm"] > 0


def test_unusual_rows_train(train: Callable) -> None:
    names = {"ohem": "kept_share", "focal": "loss_focal", "lovasz": "loss_lovasz", "dice": "loss_dice"}
    ohem, *others, _ = train(2, *(f"losses.{row}" for row in names), "losses.cipc_released")
    for folder, name in zip((ohem, *others), names.values(), strict=True):
        [line] = (folder / "history.jsonl").read_text().splitlines()
        assert json.loads(line)[f"decode.{name}"] > 0
    line = json.loads((ohem / "history.jsonl").read_text())
    assert 0.2 <= line["decode.kept_share"] <= 1
    assert line["loss"] == pytest.approx(line["decode.loss_ce"] + line["aux.loss_ce"])
