"""Extraction from really trained runs: the same pixels in every run, numbers that agree with the evaluation."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from mmseg.apis import inference_model, init_model, show_result_pyplot
from PIL import Image
from tiny_runs import CLASSES, work_of

from pne.counts import read_confusion
from pne.errors import UserError
from pne.extract import __main__ as extract
from pne.extract.archives import ChosenImage, Features, ImageSelection, Pairs, Predictions, write_selection
from pne.extract.network import Network, pixel_keys, smallest_keys


@pytest.fixture(scope="module")
def specs(finished: Mapping[str, Path]) -> dict[str, Path]:
    """A run with cross entropy alone and one with PNE, both trained for a few iterations."""
    return {name: finished[name] for name in ("base", "pne")}


@pytest.fixture(scope="module")
def features(specs: dict[str, Path]) -> dict[str, Features]:
    assert extract.main([*map(str, specs.values()), "--per-class", "7", "--seed", "3"]) == 0
    return {name: Features.read(spec.parents[2] / "features" / f"{name}.npz") for name, spec in specs.items()}


def test_both_runs_store_the_same_pixels_by_label(features):
    base, pne = (f.select(f.by_label) for f in features.values())
    for field in ("label", "image", "position", "grid"):
        assert np.array_equal(getattr(base, field), getattr(pne, field))
    assert not np.array_equal(base.penultimate, pne.penultimate)


def test_samples_are_balanced_and_the_correct_one_is_correct(features):
    for f in features.values():
        assert np.bincount(f.label[f.by_label]).tolist() == [7] * CLASSES  # every class has more pixels
        assert 0 < np.bincount(f.label[f.by_correct]).max() <= 7
        assert f.correct[f.by_correct].all()
        assert not f.correct[f.by_label].all()
        assert ((f.confidence > 1 / CLASSES - 1e-6) & (f.confidence <= 1)).all()


def test_stored_features_give_the_stored_prediction_and_projection(specs, features):
    network, stored = Network(specs["pne"]), features["pne"]
    with torch.no_grad():
        penultimate = torch.from_numpy(stored.penultimate)[:, :, None, None]
        logits = network.head.conv_seg(penultimate).flatten(1)
        projection = network.branch.projection(penultimate).flatten(1)
    assert np.array_equal(logits.argmax(1).numpy(), stored.prediction)
    np.testing.assert_allclose(logits.softmax(1).amax(1).numpy(), stored.confidence, rtol=1e-4)
    np.testing.assert_allclose(projection.numpy(), stored.projection, rtol=1e-3, atol=1e-4)
    assert features["base"].projection is None


def test_extracting_again_gives_the_same_bytes_and_another_seed_other_pixels(specs, features, tmp_path):
    for seed, same in (("3", True), ("4", False)):
        extract.main([str(specs["base"]), "--per-class", "7", "--seed", seed, "--out", str(tmp_path / seed)])
        again = (tmp_path / seed / "base.npz").read_bytes()
        assert (again == (specs["base"].parents[2] / "features" / "base.npz").read_bytes()) == same


def test_predictions_are_those_that_were_scored_and_images_have_their_own_colours(specs, data, tmp_path):
    images = [ChosenImage(index=index, name=f"{index:03d}", reason="-") for index in (4, 1)]
    write_selection(tmp_path / "selection.json", ImageSelection(rule="-", images=images))
    arguments = ["--predictions", str(tmp_path / "selection.json"), "--out", str(tmp_path)]
    assert extract.main([str(specs["pne"]), *arguments]) == 0
    stored = Predictions.read(tmp_path / "pne.npz")
    confusion = read_confusion(specs["pne"].parent / "single_scale.confusion.npz")
    assert stored.names.tolist() == [confusion.names[4], confusion.names[1]]
    for row, index in enumerate(stored.index):
        image, label, prediction = stored.panel(row)
        with Image.open(data / f"img_dir/test/{index:03d}.jpg") as file:
            assert np.abs(np.asarray(file).astype(int) - image).mean() < 2  # decoders of JPEG differ a little
        counted = np.zeros((CLASSES, CLASSES), int)
        valid = label < CLASSES
        np.add.at(counted, (label[valid], prediction[valid]), 1)
        of_image = replace(confusion, count=confusion.count * (confusion.image == index))
        assert np.array_equal(counted, of_image.total())


def test_the_model_of_a_run_serves_mmsegmentations_own_inference(specs, tmp_path):
    network = Network(specs["pne"])
    path, (_, _, prediction) = network.dataset.get_data_info(0)["img_path"], network.see(0)
    found = inference_model(network.model, path).pred_sem_seg.data[0].cpu().numpy()
    assert np.array_equal(found, prediction)
    assert len(network.model.dataset_meta["classes"]) == CLASSES
    show_result_pyplot(
        network.model, path, inference_model(network.model, path), show=False, out_file=tmp_path / "a.png"
    )
    assert (tmp_path / "a.png").stat().st_size > 0
    bare = init_model(str(specs["pne"].with_name("config.py")), str(work_of(specs["pne"]) / "final.pth"), "cpu")
    assert tuple(bare.dataset_meta["classes"]) == tuple(network.model.dataset_meta["classes"])
    assert len(bare.dataset_meta["palette"]) == CLASSES


def test_other_weights_than_the_results_are_refused(copied, error_of):
    (work_of(copied) / "final.pth").write_bytes(b"other")
    assert "was measured with weights of" in error_of(extract.main, copied)
    assert not (copied.parents[2] / "features").exists()


@pytest.mark.parametrize(
    ("name", "kind", "folder", "message"),
    [
        ("pne", "confusions", [], "--out: missing"),
        ("pne", "images", ["--out", "out"], "holds no ConfusionSelection"),
        ("base", "confusions", ["--out", "out"], "draws no pairs"),
    ],
)
def test_a_selection_that_cannot_be_shown_is_a_clear_error(specs, tmp_path, error_of, name, kind, folder, message):
    path = tmp_path / "selection.json"
    path.write_text(json.dumps({"kind": kind, "rule": "-", kind: []}))
    assert message in error_of(extract.main, specs[name], "--pairs", path, *folder)


def test_too_little_memory_is_told(specs, monkeypatch, error_of):
    def fail(*arguments):
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")

    monkeypatch.setattr(Network, "look", fail)
    error = error_of(extract.main, specs["base"], status=1)
    assert "out of memory in the extraction; try a GPU with more memory, or the CPU (--config device=cpu) (R" in error


def test_damaged_archives_are_clear_errors(features, tmp_path):
    path = tmp_path / "features.npz"
    with pytest.raises(UserError, match="no such file"):
        Features.read(path)
    features["base"].write(path)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(UserError, match="holds no Features"):
        Features.read(path)
    features["base"].write(path)
    with pytest.raises(UserError, match="holds no Pairs"):
        Pairs.read(path)
    with pytest.raises(ValueError, match="label has"):
        replace(features["base"], label=features["base"].label[:-1])


def test_a_sample_is_the_same_however_the_images_are_parted():
    rng = np.random.default_rng(0)
    keys, classes = rng.random(300), rng.integers(0, 4, 300)
    whole, kept = smallest_keys(keys, classes, 9), np.empty(0, int)
    for part in np.array_split(np.arange(300), 7):
        kept = np.concatenate([kept, part])
        kept = kept[smallest_keys(keys[kept], classes[kept], 9)]
    assert np.array_equal(whole, kept)
    expected = [np.flatnonzero(classes == c)[np.argsort(keys[classes == c])[:9]] for c in range(4)]
    assert np.array_equal(whole, np.concatenate(expected))


def test_keys_are_uniform_and_differ_by_image_and_seed():
    keys = pixel_keys(0, 5, 20_000)
    assert abs(np.histogram(keys, 10, (0, 1))[0] - 2000).max() < 250
    same = [np.array_equal(keys, pixel_keys(*place, 20_000)) for place in ((0, 5), (0, 6), (1, 5))]
    assert same == [True, False, False]
