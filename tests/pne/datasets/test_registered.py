"""The data sets read their files, and keeping them in memory changes nothing but the time."""

import json
from pathlib import Path

import pytest
import torch
from data_files import assert_same_sample, dataset_config
from mmseg.registry import DATASETS

from pne.datasets import registered
from pne.datasets.layouts import LAYOUTS, layout
from pne.datasets.positioned import Draw, PositionSeeded
from pne.datasets.synthetic_street import VARIANTS
from pne.errors import UserError
from pne.spec.catalogue import class_names


def build(root: Path, *arguments: str, **settings) -> registered.StreetCityDataset:
    return DATASETS.build(dataset_config(root, *arguments, **settings))


def test_samples_are_identical_with_and_without_the_cache(street):
    plain, kept = (PositionSeeded(build(street, cache_data=flag)) for flag in (False, True))
    for turn in range(2):  # the second time around nothing may have rubbed off on the stored arrays
        for index in range(0, len(plain), 17):
            draw = Draw(index, index, seed=100 * turn + index)
            assert_same_sample(plain[draw], kept[draw])


def test_cached_files_are_not_read_again(street, monkeypatch):
    kept = build(street, cache_data=True, indices=3)
    monkeypatch.setattr("mmengine.fileio.get", None)
    assert kept[0]["inputs"].ndim == 3
    with pytest.raises(TypeError):
        build(street)[0]


def test_cache_starts_when_the_data_set_is_initialised_not_before(street):
    lazy = build(street, cache_data=True, lazy_init=True, indices=3)
    assert lazy._decoded is None
    lazy.full_init()
    assert len(lazy._decoded) == len(lazy) == 3


@pytest.mark.parametrize(("chosen", "expected"), [(3, [0, 1, 2]), (-2, [18, 19]), ([7, 5], [7, 5])])
def test_a_cached_subset_keeps_its_own_samples(street, chosen, expected):
    whole, cut, copied = (build(street, cache_data=kept, indices=20) for kept in (False, True, True))
    cut.get_subset_(chosen)
    for part in (cut, copied.get_subset(chosen)):
        assert len(part) == len(expected)
        for place, index in enumerate(expected):
            pixels = PositionSeeded(part)[Draw(0, place, 1)]["inputs"]
            torch.testing.assert_close(pixels, PositionSeeded(whole)[Draw(0, index, 1)]["inputs"], rtol=0, atol=0)
    assert len(copied) == 20


def test_a_pipeline_that_reads_nothing_first_is_not_cached(street):
    flip_first = [{"type": "LoadImageFromFile"}, {"type": "RandomFlip", "prob": 0.5}, {"type": "LoadAnnotations"}]
    loading, rest = registered.split_loading(build(street, pipeline=flip_first).pipeline.transforms)
    assert [type(t).__name__ for t in loading] == ["LoadImageFromFile"]
    assert [type(t).__name__ for t in rest] == ["RandomFlip", "LoadAnnotations"]


def test_too_much_data_for_the_memory_allowed_is_refused(street):
    with pytest.raises(UserError, match=r"of 200 decoded images take 1 MiB, more than cache_limit_mib = 0\.5; set"):
        build(street, cache_data=True, cache_limit_mib=0.5)


@pytest.mark.parametrize("name", VARIANTS)
def test_street_data_sets_have_the_classes_of_their_variant(name):
    kind = DATASETS.get(LAYOUTS[name].dataset_type)
    assert kind.METAINFO["classes"] == VARIANTS[name].classes
    assert kind.METAINFO["palette"] == [list(colour) for colour in VARIANTS[name].palette]


def test_camvid_has_the_classes_and_colours_of_its_description(shared):
    for folder in ("camvid", "camvid_tiny"):
        meta = json.loads((shared / "data" / folder / "meta.json").read_text())
        assert list(registered.CamVidDataset.METAINFO["classes"]) == meta["classes"]
        assert registered.CamVidDataset.METAINFO["palette"] == meta["palette_rgb"]


def test_every_layout_names_a_registered_data_set_with_as_many_classes():
    for known in LAYOUTS.values():
        assert class_names(known.name) == tuple(DATASETS.get(known.dataset_type).METAINFO["classes"])
        assert len(class_names(known.name)) == known.num_classes == len(known.label_values)
        assert layout(known.name) is known
        assert layout(known.dataset_type).classes == known.classes


def test_unknown_data_set_names_the_known_ones():
    with pytest.raises(UserError, match="'citiscapes' is not known; choose one of cityscapes, coco_stuff, ade20k"):
        layout("citiscapes")
