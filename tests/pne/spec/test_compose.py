"""Composing a run's config: inheritance, changes, the contrast head, precision, environment."""

import pytest
from mmengine.config import Config

from pne.errors import UserError
from pne.spec.checks import check_changes
from pne.spec.compose import BaseConfigs, RunConfig, place
from pne.spec.contrast import ResolvedContrast
from pne.spec.stock import apply_changes, merged, pretrained_url, read_inherited, read_stock, stock_folder

PNE = ResolvedContrast("pne", "PNELoss", {"temperature": 0.5}, 1.3, 0, None)


@pytest.fixture(scope="module")
def bases(repository):
    return BaseConfigs(repository / "experiments", "random")


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def run_config(base, **arguments):
    settings = {"changes": None, "contrast": None, "seed": 3, "precision": "fp32"} | arguments
    return RunConfig(base, **settings)


# Inheritance.

ELEMENT = {"a": {"1": {"x": 5}}}  # of a list, which mmengine changes only where it is asked to


@pytest.mark.parametrize(
    ("base", "changes", "expected"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"a": {"x": 1}}, {"a": {"_delete_": True, "y": 3}}, {"a": {"y": 3}}),
        ({}, {"a": {"_delete_": True, "y": 3}}, {"a": {"y": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": [{"x": 1}, {"x": 2}]}, ELEMENT, {"a": [{"x": 1}, {"x": 5}]}),
        ({"a": [1, 2]}, {}, {"a": [1, 2]}),
        ({"a": {"x": 1}}, {"a": 3}, {"a": 3}),
    ],
)
def test_changes_merge_as_in_mmengine(base, changes, expected):
    assert merged(base, changes) == expected
    if base and changes != ELEMENT:
        assert Config._merge_a_into_b(changes, base) == expected


def test_merging_alters_neither_side():
    base, changes = {"a": {"x": [1]}}, {"a": {"y": [2]}}
    result = merged(base, changes)
    result["a"]["x"].append(9)
    result["a"]["y"].append(9)
    assert base == {"a": {"x": [1]}}
    assert changes == {"a": {"y": [2]}}


def test_stock_configs_are_those_that_mmseg_ships():
    import mmseg

    assert str(stock_folder()).startswith(str(mmseg.__path__[0]).removesuffix("mmseg"))
    assert read_stock("_base_/schedules/schedule_40k.py")["train_cfg"]["max_iters"] == 40000


def test_a_model_file_states_its_changes_to_a_stock_config(tmp_path):
    path = tmp_path / "model.py"
    name = "deeplabv3/deeplabv3_r50-d8_4xb2-40k_cityscapes-512x1024.py"
    path.write_text(f"stock = '{name}'\nmodel = dict(backbone=dict(depth=34))\n")
    config, stock = read_inherited(path, ("model",)), read_stock(name)
    assert set(config) == {"model"}
    assert config["model"]["backbone"] == stock["model"]["backbone"] | {"depth": 34}
    assert config["model"]["decode_head"] == stock["model"]["decode_head"]

    with pytest.raises(UserError, match="did you mean hrnet/fcn_hr18_4xb2-40k"):
        read_stock("hrnet/fcn_hr19_4xb2-40k_cityscapes-512x1024.py")


def test_hub_names_become_urls():
    assert pretrained_url("open-mmlab://resnet18_v1c").endswith("/resnet18_v1c-b5776b93.pth")
    assert pretrained_url("https://example.org/a.pth") == "https://example.org/a.pth"
    with pytest.raises(UserError, match="did you mean resnet101_v1c"):
        pretrained_url("open-mmlab://resnet102_v1c")


# Changes of a row.


def test_dotted_keys_change_values_dicts_and_list_elements():
    config = {"model": {"head": [{"width": 1}, {"width": 2}], "norm": {"type": "BN", "eps": 1}}}
    changes = {"model.head.1.width": 3, "model.norm": {"eps": 2}, "model.new": 4, "model.head.0": {"width": 7}}
    expected = {"model": {"head": [{"width": 7}, {"width": 3}], "norm": {"type": "BN", "eps": 2}, "new": 4}}
    assert apply_changes(config, changes) == expected
    assert config["model"]["head"][1]["width"] == 2


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("modle.x", r"config\.modle\.x: no modle in the config; allowed: model"),
        ("model.head.5.width", r"config\.model\.head\.5\.width: no model\.head\.5 in the config; allowed: 0, 1"),
        ("model.head.x", r"config\.model\.head\.x: no model\.head\.x"),
        ("model.depth.x", r"config\.model\.depth\.x: model\.depth has no keys, it is 50"),
    ],
)
def test_changes_through_what_is_not_there_are_named(key, message):
    with pytest.raises(UserError, match=message):
        apply_changes({"model": {"head": [{}, {}], "depth": 50}}, {key: 1})


# The contrast head.


def test_the_only_head_is_wrapped_and_the_auxiliary_one_is_not(bases):
    base = bases.compose("street_city", "tiny_deeplabv3_r18", "street_100")
    plain, contrasted = run_config(base).plain, run_config(base, contrast=PNE).plain
    assert without(plain, "model") == without(contrasted, "model")
    plain, contrasted = plain["model"], contrasted["model"]
    assert without(plain, "decode_head") == without(contrasted, "decode_head")
    plain, head = plain["decode_head"], contrasted["decode_head"]
    loss = {"type": "PNELoss", "temperature": 0.5}
    branch = {"type": "ContrastBranch", "loss": loss, "weight": 1.3, "seed": 3}
    assert head == plain | {"type": "ContrastHead", "base": "ASPPHead", "contrast": branch}
    assert plain["type"] == "ASPPHead"


def test_of_a_cascade_the_last_head_is_wrapped(bases):
    base = bases.compose("street_city", "tiny_ocrnet", "street_100")
    first, last = run_config(base, contrast=PNE).plain["model"]["decode_head"]
    assert first == base["model"]["decode_head"][0]
    assert (last["type"], last["base"]) == ("ContrastHead", "OCRHead")


def test_start_and_projection_are_written_where_they_are_not_the_defaults(bases):
    base = bases.compose("street_city", "tiny_hrnet", "street_100")
    contrast = ResolvedContrast("cipc", "PixelContrastLoss", {}, 0.1, 12, {"channels": 64})
    branch = run_config(base, contrast=contrast).plain["model"]["decode_head"]["contrast"]
    assert (branch["start"], branch["projection"]) == (12, {"channels": 64})


# What is shared, and what the machine decides.


def test_composing_leaves_shared_configs_alone(bases):
    base = bases.compose("street_city", "tiny_ocrnet", "street_100")
    before = merged(base, {})
    config = run_config(base, contrast=PNE, changes={"model.decode_head.0.channels": 7}, precision="bf16", limit=2)
    placed = place(config.plain, data="/d", workers=2, cache_data=True, weights_dir=None)
    assert placed["train_dataloader"]["dataset"]["dataset"]["data_root"] == "/d"
    assert base == before
    assert bases.compose("street_city", "tiny_ocrnet", "street_100") is base
    assert "data_root" not in config.plain["val_dataloader"]["dataset"]


def test_caching_is_asked_for_only_where_the_data_set_offers_it(bases):
    for dataset, model, schedule, offers in (
        ("street_city", "tiny_hrnet", "street_100", True),
        ("cityscapes", "hrnet_w18", "cityscapes_40k", False),
    ):
        config = run_config(bases.compose(dataset, model, schedule)).plain
        placed = place(config, data="/d", workers=0, cache_data=True, weights_dir=None)
        assert placed["val_dataloader"]["dataset"].get("cache_data", False) is offers


# What comes out really trains.


# How a training computes.


def test_only_another_way_to_compute_enters_the_config(bases):
    base = bases.compose("street_city", "tiny_deeplabv3_r18", "street_100")
    assert "numerics" not in run_config(base).plain
    assert "numerics" not in run_config(base, changes={"numerics.cudnn_benchmark": True}).plain
    other = run_config(base, changes={"numerics.tf32_products": True, "numerics.channels_last": False})
    assert other.plain["numerics"] == {"tf32_products": True}


@pytest.mark.parametrize("change", [{"numerics.tf32": True}, {"numerics.tf32_products": 1}, {"numerics": "fast"}])
def test_another_way_to_compute_is_true_or_false_of_a_known_key(bases, change):
    base = bases.compose("street_city", "tiny_deeplabv3_r18", "street_100")
    with pytest.raises(
        UserError, match=r"numerics: expected true or false for some of tf32_products, .*, got|config.num"
    ):
        check_changes(base, change)
