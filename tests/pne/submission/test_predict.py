"""The archive for the Cityscapes server: what is in it, that it is what the model predicts, and what is refused."""

import fnmatch
import io
import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from paper_data import draw_cityscapes
from PIL import Image
from tiny_runs import draw_images, work_of, write_run

from pne import evaluate, train
from pne.datasets import layouts
from pne.datasets import prepare as preparation
from pne.datasets.prepare import prepare
from pne.errors import UserError
from pne.spec import read_config, read_spec, write_spec
from pne.submission.__main__ import main
from pne.submission.predict import archive_name

SIZE = (64, 128)
STEMS = [f"berlin_{number:06d}_000019" for number in range(3)]


def dataset(root: Path, split: str, *steps: dict) -> dict:
    return {
        "_delete_": True,
        "type": "CityscapesDataset",
        "data_root": str(root),
        "data_prefix": {"img_path": f"leftImg8bit/{split}", "seg_map_path": f"gtFine/{split}"},
        "pipeline": [{"type": "LoadImageFromFile"}, *steps, {"type": "LoadAnnotations"}, {"type": "PackSegInputs"}],
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = draw_cityscapes(tmp_path_factory.mktemp("data") / "cityscapes", SIZE)
    prepare("cityscapes", root)
    return root


@pytest.fixture(scope="module")
def spec(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt a little of the drawn images; scored at half their size, predicted at full size."""
    resize = {"type": "Resize", "scale": (SIZE[1] // 2, SIZE[0] // 2), "keep_ratio": True}
    change = {
        "model.decode_head.num_classes": 19,
        "model.data_preprocessor.size": SIZE,
        "train_dataloader.dataset.dataset": dataset(root, "train"),
        "test_dataloader.dataset": dataset(root, "val", resize),
    }
    path = write_run(tmp_path_factory.mktemp("run"), root, iterations=100, change=change)
    run = read_spec(path).model_copy(update={"layout": "cityscapes", "dataset_title": "Cityscapes"})
    assert write_spec(run, read_config(path)) == path
    assert train.main([str(path)]) == 0
    return path


def submit(spec: Path, *arguments: str) -> int:
    return main(["--subset", *arguments, str(spec)])


def archive_of(spec: Path, settings: str = ".subset") -> Path:
    return spec.parents[2] / "submissions" / f"{spec.parent.name}{settings}.zip"


def pictures(spec: Path, settings: str = ".subset") -> dict[str, np.ndarray]:
    with zipfile.ZipFile(archive_of(spec, settings)) as archive:
        assert archive.testzip() is None
        return {name: np.asarray(Image.open(io.BytesIO(archive.read(name)))) for name in archive.namelist()}


def moved(spec: Path, results: Path, config: Config | None = None, **runtime: str) -> Path:
    """Return the spec of the same run with results elsewhere, where there are none."""
    run = read_spec(spec)
    there = run.runtime.model_copy(update={"results": str(results), **runtime})
    return write_spec(run.model_copy(update={"runtime": there}), config or read_config(spec))


@pytest.fixture(scope="module")
def submitted(spec: Path) -> Path:
    assert submit(spec) == 0
    return spec


def test_the_server_finds_exactly_one_picture_of_grey_label_ids_for_every_test_image(submitted: Path) -> None:
    found = pictures(submitted)
    assert len(found) == len(STEMS)
    for stem in STEMS:
        (name,) = fnmatch.filter(found, f"{stem}*.png")
        picture = found[name]
        assert picture.dtype == np.uint8
        assert picture.shape == SIZE
        assert set(np.unique(picture)) <= set(preparation.TRAINED_IDS)


@pytest.mark.parametrize(
    ("evaluation", "settings"), [("single_scale", ".single_scale.subset"), ("multi_scale_flip", ".subset")]
)
def test_pictures_are_what_the_evaluation_predicts(
    spec: Path, root: Path, tmp_path: Path, evaluation: str, settings: str
) -> None:
    """Train ids of the pictures as labels of the test split: an evaluation there must find no error."""
    assert submit(spec, "--evaluation", evaluation) == 0
    copy = tmp_path / "cityscapes"
    (copy / "leftImg8bit").mkdir(parents=True)
    (copy / "leftImg8bit/val").symlink_to(root / "leftImg8bit/test")
    for name, picture in pictures(spec, settings).items():
        label = copy / "gtFine/val/berlin" / name.replace("labelIds", "gtFine_labelTrainIds")
        label.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(preparation.CITYSCAPES_TRAIN_IDS[picture]).save(label)
    assert len(np.unique(list(pictures(spec, settings).values()))) > 1
    config = read_config(spec)
    config.test_dataloader.dataset.data_root = str(copy)
    there = moved(spec, tmp_path / "results", config)
    shutil.copy(spec.parent / "train.json", there.parent)
    shutil.copytree(work_of(spec), work_of(there))
    assert evaluate.main(["--evaluation", evaluation, str(there)]) == 0
    assert json.loads((there.parent / f"{evaluation}.json").read_text())["aacc"] == 100


def test_several_scales_are_the_default_and_said_beside_the_archive(submitted: Path, spec: Path) -> None:
    about = json.loads(archive_of(spec).with_suffix(".json").read_text())
    assert (about["run"], about["evaluation"], about["images"]) == (spec.parent.name, "multi_scale_flip", 3)
    trained = json.loads((spec.parent / "train.json").read_text())
    assert about["weights_sha256"] == trained["weights_sha256"]


def test_other_settings_leave_the_official_archive_alone(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cityscapes = layouts.LAYOUTS["cityscapes"]
    three = cityscapes.splits | {"test": replace(cityscapes.splits["test"], count=3)}
    monkeypatch.setitem(layouts.LAYOUTS, "cityscapes", replace(cityscapes, splits=three))
    assert main([str(spec)]) == 0
    official = archive_of(spec, "")
    made = [path.stat().st_mtime_ns for path in (official, official.with_suffix(".json"))]
    for arguments, settings in (
        (["--evaluation", "single_scale"], ".single_scale"),
        (["--bfloat16"], ".bfloat16"),
        (["--subset"], ".subset"),
        (["--subset", "--bfloat16", "--evaluation", "single_scale"], ".single_scale.bfloat16.subset"),
    ):
        archive_of(spec, settings).unlink(missing_ok=True)
        assert main([*arguments, str(spec)]) == 0
        assert archive_of(spec, settings).is_file()
        about = json.loads(archive_of(spec, settings).with_suffix(".json").read_text())
        assert about["bfloat16"] == ("--bfloat16" in arguments)
        assert about["evaluation"] == ("single_scale" if "single_scale" in arguments else "multi_scale_flip")
    assert made == [path.stat().st_mtime_ns for path in (official, official.with_suffix(".json"))]


def test_the_same_run_gives_the_same_archive(submitted: Path, spec: Path) -> None:
    before = archive_of(spec).read_bytes()
    archive_of(spec).unlink()
    assert submit(spec) == 0
    assert archive_of(spec).read_bytes() == before


def test_an_interrupted_call_goes_on_with_what_is_missing(
    submitted: Path, spec: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pne.submission import predict

    before = archive_of(spec).read_bytes()
    write, written = predict.save_label, []

    def full_disk(path: Path, labels: np.ndarray) -> None:
        if len(written) == 2:
            raise UserError(f"{path}: No space left on device")
        written.append(path)
        write(path, labels)

    monkeypatch.setattr(predict, "save_label", full_disk)
    assert submit(spec) == 2
    assert "No space left" in capsys.readouterr().err
    assert archive_of(spec).read_bytes() == before
    monkeypatch.undo()
    assert submit(spec) == 0
    assert "2 of 3 images were predicted before" in capsys.readouterr().out
    assert archive_of(spec).read_bytes() == before
    assert not list(read_spec(spec).work_directory.glob("submission*"))


def test_a_name_that_the_server_does_not_know_is_refused() -> None:
    with pytest.raises(UserError, match=r"holiday: expected <city>_<6 digits>_<6 digits>_leftImg8bit"):
        archive_name("holiday")


def test_a_part_of_the_split_is_refused_unless_wanted(spec: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(spec)]) == 2
    assert "expected the 1525 images of the test split in leftImg8bit/test, found 3" in capsys.readouterr().err


def test_missing_images_say_what_to_unpack(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "cityscapes").mkdir()
    assert submit(moved(spec, tmp_path / "results", data_root=str(tmp_path))) == 2
    assert "leftImg8bit_trainvaltest.zip" in capsys.readouterr().err


def test_another_data_set_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    spec = write_run(tmp_path, draw_images(tmp_path / "camvid", train=1, test=1))
    assert submit(spec) == 2
    assert "trained on generated; the server takes results on Cityscapes alone" in capsys.readouterr().err


def test_a_run_that_has_not_finished_is_refused(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert submit(moved(spec, tmp_path / "results")) == 2
    assert "train.json: no such result; the run has not finished" in capsys.readouterr().err
