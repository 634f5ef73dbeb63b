"""The paper track, key by key, against the zoo configs it stands for."""

from pathlib import Path

import pytest

from pne.spec import load_track
from pne.spec.stock import read_stock

RESNET101 = "resnet101_v1c-e67eebb6.pth"
HRNET48 = "hrnetv2_w48-d2186c55.pth"

CITYSCAPES_ZOO = {
    "deeplabv3_r50": "deeplabv3/deeplabv3_r50-d8_4xb2-40k_cityscapes-512x1024.py",
    "deeplabv3_r101": "deeplabv3/deeplabv3_r101-d8_4xb2-40k_cityscapes-512x1024.py",
    "encnet_r101": "encnet/encnet_r101-d8_4xb2-40k_cityscapes-512x1024.py",
    "hrnet_w48": "hrnet/fcn_hr48_4xb2-40k_cityscapes-512x1024.py",
    "ocrnet_w48": "ocrnet/ocrnet_hr48_4xb2-40k_cityscapes-512x1024.py",
}
SWIN_ZOO = "swin/swin-base-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"
OCR_ADE_ZOO = "ocrnet/ocrnet_hr48_4xb4-160k_ade20k-512x512.py"

# Where the data set is not the zoo config's own, its loaders are compared with the shipped data set config instead.
CASES = {
    **{("cityscapes", model): (zoo, zoo) for model, zoo in CITYSCAPES_ZOO.items()},
    ("coco_stuff", "deeplabv3_r101"): ("deeplabv3/deeplabv3_r101-d8_4xb4-40k_coco-stuff10k-512x512.py",) * 2,
    ("coco_stuff", "ocrnet_w48"): (OCR_ADE_ZOO, "_base_/datasets/coco-stuff10k.py"),
    ("coco_stuff", "upernet_swin_b"): (SWIN_ZOO, "_base_/datasets/coco-stuff10k.py"),
    ("ade20k", "ocrnet_w48"): (OCR_ADE_ZOO,) * 2,
}
# Ours runs with one global batch, a repeatable order, BN that becomes SyncBN on several GPUs, and evaluates at the end.
EVERYWHERE = {
    "train_dataloader.sampler.type": ("InfiniteSampler", "PositionedInfiniteSampler"),
    "train_dataloader.sampler.seed": ("absent", 0),
}
PRETRAINED = {
    "deeplabv3_r50": ("open-mmlab://resnet50_v1c", "resnet50_v1c-2cccc1ad.pth"),
    "deeplabv3_r101": ("open-mmlab://resnet101_v1c", RESNET101),
    "encnet_r101": ("open-mmlab://resnet101_v1c", RESNET101),
    "hrnet_w48": ("open-mmlab://msra/hrnetv2_w48", HRNET48),
    "ocrnet_w48": ("open-mmlab://msra/hrnetv2_w48", HRNET48),
}
BATCH_PER_GPU = {"cityscapes": (2, 8), "coco_stuff": (4, 16), "ade20k": (4, 16)}
LR, LENGTH, POLY_END = "optim_wrapper.optimizer.lr", "train_cfg.max_iters", "param_scheduler.0.end"
ITS_OWN = {
    ("coco_stuff", "deeplabv3_r101"): {LR: (0.01, 0.001)} | dict.fromkeys((LENGTH, POLY_END), (40000, 60000)),
    ("coco_stuff", "ocrnet_w48"): {LR: (0.01, 0.001)}
    | dict.fromkeys((LENGTH, POLY_END), (160000, 60000))
    | {f"model.decode_head.{i}.num_classes": (150, 171) for i in (0, 1)},
    ("coco_stuff", "upernet_swin_b"): {"model.pretrained": (None, "absent")}
    | dict.fromkeys((LENGTH, "param_scheduler.1.end"), (160000, 60000))
    | {f"model.{head}.num_classes": (150, 171) for head in ("decode_head", "auxiliary_head")},
}


def flat(value, prefix=""):
    """Every leaf by its dotted key."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        return {prefix: value}
    leaves = {}
    for key, item in items:
        leaves |= flat(item, f"{prefix}.{key}" if prefix else str(key))
    return leaves


def differences(zoo, ours):
    zoo, ours = flat(zoo), flat(ours)
    return {
        key: (zoo.get(key, "absent"), ours.get(key, "absent"))
        for key in {**zoo, **ours}
        if zoo.get(key, "absent") != ours.get(key, "absent")
    }


@pytest.fixture(scope="module")
def track(repository):
    return load_track("paper", experiments=repository / "experiments")


def base_run(track, dataset, model):
    found = [r for r, run in track.runs.items() if (run.dataset, run.model, run.contrast) == (dataset, model, None)]
    assert len(found) == 1
    return found[0]


def test_the_cases_are_all_networks_that_the_tables_train(track):
    assert set(CASES) == {(run.dataset, run.model) for run in track.runs.values()}


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_differs_from_the_zoo_config_only_where_intended(track, case):
    dataset, model = case
    zoo_name, data_name = CASES[case]
    stock = read_stock(zoo_name) | {
        key: read_stock(data_name)[key] for key in ("train_dataloader", "val_dataloader", "val_evaluator")
    }
    config = track.config(base_run(track, dataset, model)).to_dict()
    assert config["test_dataloader"] == config["val_dataloader"]
    sections = ("model", "optim_wrapper", "param_scheduler", "train_cfg", "train_dataloader", "val_dataloader")
    ours = {key: config[key] for key in (*sections, "val_evaluator", "val_cfg", "test_cfg")}
    wrapper = ours["train_dataloader"]["dataset"]
    assert wrapper.pop("type") == "PositionSeeded"
    ours["train_dataloader"]["dataset"] = wrapper.pop("dataset")
    assert wrapper == {}

    found = differences({key: stock[key] for key in ours}, ours)

    norms = {key: pair for key, pair in found.items() if key.endswith("norm_cfg.type")}
    assert norms, "the zoo configs synchronise batch norm"
    assert set(norms.values()) == {("SyncBN", "BN")}
    for key in norms:
        del found[key]
    # Of the machine, not of the training: how many processes load, and how the folder is written.
    for key in [key for key in found if key.endswith(("num_workers", "data_root"))]:
        zoo, here = found.pop(key)
        assert here == (4 if key.endswith("num_workers") else zoo.rstrip("/"))
    # Scored once, at the end.
    assert found.pop("train_cfg.val_interval")[1] == config["train_cfg"]["max_iters"]

    expected = EVERYWHERE | ITS_OWN.get(case, {})
    expected["train_dataloader.batch_size"] = BATCH_PER_GPU[dataset]
    if model in PRETRAINED:
        name, file = PRETRAINED[model]
        expected["model.pretrained"] = (name, "absent")
        expected["model.backbone.init_cfg.type"] = ("absent", "Pretrained")
        url = found.pop("model.backbone.init_cfg.checkpoint")[1]
        assert url.startswith("https://")
        assert Path(url).name == file
    assert found == expected


def test_swin_may_be_trained_with_the_papers_sgd(declarations):
    text = (
        "table: sgd\nquestion: Does SGD train Swin-B?\ndataset: coco_stuff\nmodel: upernet_swin_b_sgd\n"
        "columns: {miou: {title: mIoU, kind: metric, metric: miou}}\nrows: {base: {label: SGD}}\n"
    )
    declarations.write("tables/sgd.yaml", text)
    track = declarations.load("paper", tables=["sgd"])
    config = track.config(base_run(track, "coco_stuff", "upernet_swin_b_sgd"))
    optimiser = config.optim_wrapper.optimizer
    assert optimiser.to_dict() == {"type": "SGD", "lr": 0.001, "momentum": 0.9, "weight_decay": 0.0005}
    assert [scheduler.type for scheduler in config.param_scheduler] == ["PolyLR"]
    assert config.model.backbone.embed_dims == 128


def test_every_network_can_be_built_with_and_without_contrast(track):
    torch = pytest.importorskip("torch")
    from mmengine.registry import DefaultScope
    from mmseg.registry import MODELS

    import pne.heads  # noqa: F401  registers ContrastHead

    DefaultScope.get_instance("paper-configs", scope_name="mmseg")
    kinds = {}
    for name, run in track.runs.items():
        kinds[run.dataset, run.model, run.contrast and run.contrast["loss"]] = name
    for name in kinds.values():
        model = track.config(name).model
        model.backbone.pop("init_cfg", None)
        # Shapes without memory where possible; Swin reads values while it is built.
        with torch.device("cpu" if model.backbone.type == "SwinTransformer" else "meta"):
            network = MODELS.build(model)
        has_branch = any(".contrast." in key for key, _ in network.named_parameters())
        assert has_branch == (track.runs[name].contrast is not None), name
