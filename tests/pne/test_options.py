"""The table of options: defaults, checks, presets, and what identifies a setting."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import fields

import pytest

from pne.options import LOSSES, PRESETS, OptionError, non_default_options, resolve_options
from pne.spec.identity import SPEC_VERSION


@pytest.mark.parametrize("loss", LOSSES)
def test_defaults_are_allowed_and_plain(loss):
    defaults = resolve_options(loss, {})
    assert [entry.name for entry in fields(LOSSES[loss])] == list(defaults)
    assert all(entry.metadata["doc"].endswith(".") for entry in fields(LOSSES[loss]))
    assert json.loads(json.dumps(defaults)) == defaults
    for preset, options in PRESETS[loss].items():
        assert resolve_options(loss, {}, preset) == resolve_options(loss, options)


def test_the_presets():
    assert non_default_options("PNELoss", {}, "paper") == {}
    assert non_default_options("PNELoss", {"num_samples": 100}, "authors") == dict(PRESETS["PNELoss"]["authors"])
    assert resolve_options("PNELoss", {"max_anchors": 7}, "authors")["max_anchors"] == 7


def test_the_defaults_are_those_of_the_paper_and_a_preset_those_of_the_released_code():
    sampling = {"num_samples": 100, "max_anchors": 200, "max_set_size": None, "anchors_per_set": None}
    sampling |= {"sampling": "random", "detach_samples": False, "detach_anchor_norm": False}
    sampling |= {"anchor_sets": "individual", "negatives": "corresponding"}
    sampling |= {"reduction": "anchor_mean", "empty_negatives": "drop", "temperature": 1.0}
    sampling |= {"anchors_from": "errors", "anchor_draw": "uniform"}
    paper = {**sampling, "positive_weight": "softmax", "normalize_weight": True}
    cross_image = {"temperature": 0.1, "base_temperature": 0.07, "max_anchors": 1024, "anchors_per_class": 100}
    cross_image |= {"error_share": 0.5, "memory_size": None, "pixels_per_image": 10}
    asymmetric = {**sampling, "negative_mean": False}
    expected = {"PNELoss": paper, "AsymmetricContrastLoss": asymmetric, "PixelContrastLoss": cross_image}
    assert (SPEC_VERSION, {loss: resolve_options(loss, {}) for loss in LOSSES}) == (1, expected), (
        "Run ids hash the options that differ from the defaults. If a default changed, old results would be taken for "
        "new ones: raise SPEC_VERSION in pne/spec/identity.py, and here. If an option was added whose default keeps "
        "what the loss did before, add it here alone."
    )
    authors = {"max_anchors": None, "max_set_size": 199, "anchors_per_set": 100, "sampling": "raster"}
    authors |= {"detach_samples": True, "detach_anchor_norm": True, "normalize_weight": False}
    authors |= {"reduction": "set_size", "empty_negatives": "anchors"}
    assert resolve_options("PNELoss", {}, "authors") == {**paper, **authors}


def test_only_differences_identify_a_setting():
    assert non_default_options("PNELoss", {"temperature": 1, "sampling": "random"}) == {}
    assert non_default_options("PNELoss", {"temperature": 2}) == {"temperature": 2.0}
    assert isinstance(resolve_options("PNELoss", {"temperature": 2})["temperature"], float)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "PNELoss: option temperature must be a finite number >= 1e-06; got 0"),
        ({"temperature": float("nan")}, "got nan"),
        ({"temperature": float("inf")}, "got inf"),
        ({"temperature": "1"}, "a finite number >= 1e-06; got '1'"),
        ({"temperature": None}, "got None"),
        ({"temperature": True}, "got True"),
        ({"num_samples": 0}, "PNELoss: option num_samples must be an integer >= 1 and <= 100000; got 0"),
        ({"num_samples": 10**10}, "<= 100000; got 10000000000"),
        ({"num_samples": 2.0}, "an integer >= 1 and <= 100000; got 2.0"),
        ({"num_samples": None}, "an integer >= 1 and <= 100000; got None"),
        ({"max_anchors": True}, "an integer >= 1 | None; got True"),
        ({"detach_samples": 1}, "True | False; got 1"),
        ({"sampling": "Random"}, "'random' | 'raster'; got 'Random'"),
        ({"positive_weight": "none"}, "'softmax' | 'logit' | None; got 'none'"),
    ],
)
def test_wrong_values(options, message):
    with pytest.raises(OptionError) as error:
        resolve_options("PNELoss", options)
    assert message in str(error.value)
    assert error.value.option == next(iter(options))
    assert str(error.value).endswith(error.value.problem)


@pytest.mark.parametrize(
    ("loss", "options", "preset", "message"),
    [
        ("PNEloss", {}, None, r"PNEloss is no loss; did you mean PNELoss\? allowed: PNELoss, Asym"),
        ("PixelContrastLoss", {"swa": 1}, None, "swa is no option of PixelContrastLoss; allowed: temperature, base_te"),
        ("PNELoss", {3: 1}, None, "3 is no option of PNELoss"),
        ("PNELoss", {}, "papr", r"papr is no preset of PNELoss; did you mean paper\? allowed: paper, authors"),
        ("PixelContrastLoss", {}, "paper", r"paper is no preset of PixelContrastLoss; allowed: \(there are none\)"),
    ],
)
def test_wrong_names(loss, options, preset, message):
    with pytest.raises(OptionError, match=message):
        resolve_options(loss, options, preset)


def test_bounds_of_numbers():
    for value in (0, 0.5, 1):
        assert resolve_options("PixelContrastLoss", {"error_share": value})["error_share"] == value
    for value in (-0.1, 1.1):
        with pytest.raises(OptionError, match=f"a finite number >= 0 and <= 1; got {value}"):
            resolve_options("PixelContrastLoss", {"error_share": value})


def test_the_tables_cannot_be_changed():
    with pytest.raises(TypeError):
        LOSSES["PNELoss"] = None
    with pytest.raises(AttributeError):
        LOSSES["PNELoss"]().temperature = 2.0


def test_errors_travel_between_processes():
    with pytest.raises(OptionError) as error:
        resolve_options("PNELoss", {"temperature": 0})
    for twin in (pickle.loads(pickle.dumps(error.value)), copy.copy(error.value)):
        assert (str(twin), twin.option, twin.problem) == (str(error.value), "temperature", error.value.problem)
