"""The fast prediction over scales and mirror images against mmseg's own test-time augmentation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import ConfigDict
from tiny_runs import draw_images, model_config, run_config
from torch import nn

from benchmarks.evaluation import compare, spread_predictions, ways
from pne.engine.evaluation import evaluate
from pne.engine.inference import SCALES, Views
from pne.engine.processes import Processes
from pne.engine.runner import register
from pne.engine.weights import build_plain
from pne.errors import UserError

CPU = torch.device("cpu")
SIZES = {"own size": None, "fixed": (96, 64)}


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    register({})


def network(loader: dict, mode: str = "whole", padded: bool = False) -> nn.Module:
    """A network with arbitrary weights whose predictions vary over the image."""
    torch.manual_seed(0)
    config = model_config(None)
    if mode == "slide":
        config["test_cfg"] = {"mode": "slide", "crop_size": (32, 48), "stride": (20, 30)}
    model = build_plain(ConfigDict(config), CPU)
    spread_predictions(model, loader["dataset"], CPU)
    model.data_preprocessor.test_cfg = {"size_divisor": 32} if padded else None
    return model


def loader_config(data: Path, size: tuple[int, int] | None = None, split: str = "test") -> dict:
    loader = run_config(data)["test_dataloader"]
    loader["dataset"]["data_prefix"] = {"img_path": f"img_dir/{split}", "seg_map_path": f"ann_dir/{split}"}
    if size is not None:
        loader["dataset"]["pipeline"].insert(1, {"type": "Resize", "scale": size, "keep_ratio": True})
    return loader


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_images(tmp_path_factory.mktemp("data") / "camvid", train=1, test=3, size=(44, 65))


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(("mode", "padded"), [("whole", False), ("whole", True), ("slide", False)])
def test_predictions_equal_those_of_mmseg(data: Path, size: tuple | None, mode: str, padded: bool) -> None:
    loader = loader_config(data, size)
    predict = ways(network(loader, mode, padded), {"test_dataloader": loader}, 3, CPU)
    with torch.inference_mode():
        found, expected = list(predict["pne"]()), list(predict["mmseg"]())
    assert [prediction.name for prediction in found] == ["000", "001", "002"]
    for prediction, theirs in zip(found, expected, strict=True):
        assert prediction.predicted.shape == prediction.labels.shape == (44, 65)
        same = (prediction.predicted == theirs.predicted).float().mean()
        assert same > 0.999  # ties in the last bit may fall either way
        assert len(theirs.predicted.unique()) > 2


def test_class_iou_equals_that_of_mmseg_on_real_images(shared: Path) -> None:
    loader = loader_config(shared / "data" / "camvid_tiny", split="val")
    found = compare(network(loader), {"test_dataloader": loader}, 8, CPU, rounds=1)
    assert found["pne"]["largest_iou_difference"] <= 0.05


def test_bfloat16_predicts_nearly_the_same(data: Path) -> None:
    loader, alone = loader_config(data), Processes(0, 1, CPU)
    model, config = network(loader), {"test_dataloader": loader}
    full, half = (evaluate(model, config, "multi_scale_flip", alone, bfloat16=choice) for choice in (False, True))
    total, other = full.confusion.total(), half.confusion.total()
    assert not np.array_equal(total, other)
    assert np.abs(total - other).sum() / total.sum() < 0.1


def test_an_image_is_read_once_and_resized_once_per_scale(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    views = Views(loader_config(data)["dataset"])
    for transform in views.resizes:
        original = transform.transform
        monkeypatch.setattr(transform, "transform", lambda results, call=original: calls.append(1) or call(results))
    item = views[0]
    assert len(calls) == len(SCALES) == 6
    assert [view.shape[1:] for view in item["views"]] == [(33, 49), (44, 65), (55, 81), (66, 98), (77, 114), (88, 130)]


def test_a_pipeline_that_does_more_is_refused(data: Path) -> None:
    loader = loader_config(data)
    loader["dataset"]["pipeline"].insert(1, {"type": "PhotoMetricDistortion"})
    with pytest.raises(UserError, match=r"may read files, resize once and pack; got .*PhotoMetricDistortion"):
        Views(loader["dataset"])
