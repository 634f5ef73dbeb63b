"""The fast prediction over scales and mirror images against mmseg's own test-time augmentation."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.dataset import pseudo_collate
from mmseg.models import SegTTAModel
from mmseg.registry import DATASETS
from tiny_runs import draw_images, model_config, run_config
from torch import nn

from pne.counts import scores
from pne.engine.evaluation import count_pixels, evaluate
from pne.engine.inference import SCALES, Views, predict_multi_scale_flip
from pne.engine.processes import Processes
from pne.engine.runner import register
from pne.engine.weights import build_plain
from pne.errors import UserError

ALONE = Processes(0, 1, torch.device("cpu"))
SIZES = {"own size": None, "fixed": (96, 64)}


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    register({})


def network(mode: str = "whole", padded: bool = False) -> nn.Module:
    """A network with arbitrary weights whose predictions vary over the image."""
    torch.manual_seed(0)
    config = model_config(None)
    if mode == "slide":
        config["test_cfg"] = {"mode": "slide", "crop_size": (32, 48), "stride": (20, 30)}
    if padded:
        config["data_preprocessor"]["test_cfg"] = {"size_divisor": 32}
    model = build_plain(ConfigDict(config), ALONE.device)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = None  # average of all batches
    with torch.no_grad():
        images = torch.randn(8, 3, 4, 6).repeat_interleave(12, 2).repeat_interleave(12, 3)
        model.train()(images)
        logits = model.eval()(images)
        spread = logits.std(dim=(0, 2, 3))
        model.decode_head.conv_seg.weight /= spread[:, None, None, None]
        model.decode_head.conv_seg.bias.copy_(-logits.mean(dim=(0, 2, 3)) / spread)
    return model


def loader_config(data: Path, size: tuple[int, int] | None, split: str = "test") -> dict:
    loader = run_config(data)["test_dataloader"]
    loader["dataset"]["data_prefix"] = {"img_path": f"img_dir/{split}", "seg_map_path": f"ann_dir/{split}"}
    if size is not None:
        loader["dataset"]["pipeline"].insert(1, {"type": "Resize", "scale": size, "keep_ratio": True})
    return loader


def reference(model: nn.Module, loader: dict, size: tuple[int, int] | None) -> list[np.ndarray]:
    """Predictions of mmseg's SegTTAModel over its own TestTimeAug pipeline."""
    scales = [
        {"type": "Resize", "keep_ratio": True, "scale_factor": scale}
        if size is None
        else {"type": "Resize", "keep_ratio": True, "scale": tuple(int(side * scale + 0.5) for side in size)}
        for scale in SCALES
    ]
    flips = [{"type": "RandomFlip", "prob": prob, "direction": "horizontal"} for prob in (0.0, 1.0)]
    steps = [scales, flips, [{"type": "LoadAnnotations"}], [{"type": "PackSegInputs"}]]
    pipeline = [{"type": "LoadImageFromFile"}, {"type": "TestTimeAug", "transforms": steps}]
    dataset = DATASETS.build({**loader["dataset"], "pipeline": pipeline})
    tta = SegTTAModel(module=copy.deepcopy(model))
    tta.eval()
    with torch.inference_mode():
        return [
            tta.test_step(pseudo_collate([dataset[index]]))[0].pred_sem_seg.data.numpy().squeeze()
            for index in range(len(dataset))
        ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_images(tmp_path_factory.mktemp("data") / "camvid", train=1, test=3, size=(44, 65))


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(("mode", "padded"), [("whole", False), ("whole", True), ("slide", False)])
def test_predictions_equal_those_of_mmseg(data: Path, size: tuple | None, mode: str, padded: bool) -> None:
    model, loader = network(mode, padded), loader_config(data, size)
    expected = reference(model, loader, size)
    with torch.inference_mode():
        views = Views(loader["dataset"])
        found = list(predict_multi_scale_flip(model, (pseudo_collate([views[i]]) for i in range(3))))
    assert [prediction.name for prediction in found] == ["000", "001", "002"]
    for prediction, theirs in zip(found, expected, strict=True):
        assert prediction.predicted.shape == prediction.labels.shape == (44, 65)
        assert (prediction.predicted.numpy() == theirs).mean() > 0.999  # ties in the last bit may fall either way
        assert len(np.unique(theirs)) > 2


def test_class_iou_equals_that_of_mmseg_on_real_images(shared: Path) -> None:
    model, loader = network(), loader_config(shared / "data" / "camvid_tiny", None, "val")
    found = evaluate(model, {"test_dataloader": loader}, "multi_scale_flip", ALONE).confusion.total()
    labels = [view["labels"] for view in Views(loader["dataset"])]
    pairs = zip(map(torch.from_numpy, reference(model, loader, None)), labels, strict=True)
    expected = sum(count_pixels(*pair, len(found)) for pair in pairs)
    assert scores(found)[2] == pytest.approx(scores(expected.numpy())[2], abs=0.05)


def test_bfloat16_predicts_nearly_the_same(data: Path) -> None:
    model, config = network(), {"test_dataloader": loader_config(data, None)}
    full, half = (evaluate(model, config, "multi_scale_flip", ALONE, bfloat16=choice) for choice in (False, True))
    total, other = full.confusion.total(), half.confusion.total()
    assert not np.array_equal(total, other)
    assert np.abs(total - other).sum() / total.sum() < 0.1


def test_an_image_is_read_once_and_resized_once_per_scale(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    views = Views(loader_config(data, None)["dataset"])
    for transform in views.resizes:
        original = transform.transform
        monkeypatch.setattr(transform, "transform", lambda results, call=original: calls.append(1) or call(results))
    item = views[0]
    assert len(calls) == len(SCALES) == 6
    assert [view.shape[1:] for view in item["views"]] == [(33, 49), (44, 65), (55, 81), (66, 98), (77, 114), (88, 130)]


def test_a_pipeline_that_does_more_is_refused(data: Path) -> None:
    loader = loader_config(data, None)
    loader["dataset"]["pipeline"].insert(1, {"type": "PhotoMetricDistortion"})
    with pytest.raises(UserError, match=r"may read files, resize once and pack; got .*PhotoMetricDistortion"):
        Views(loader["dataset"])
