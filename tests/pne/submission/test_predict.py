"""The archive for the Cityscapes server: what is in it, that it is what the model predicts, and what is refused."""

import fnmatch
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from paper_data import draw_cityscapes
from PIL import Image
from tiny_runs import draw_images, scored, trained, work_of, write_run

from pne import evaluate, train
from pne.datasets import prepare as preparation
from pne.datasets.prepare import prepare
from pne.errors import UserError
from pne.spec import read_config, read_spec, write_spec
from pne.submission import predict
from pne.submission.__main__ import main
from pne.submission.predict import archive_name

SIZE = (64, 128)
STEMS = [f"berlin_{number:06d}_000019" for number in range(3)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = draw_cityscapes(tmp_path_factory.mktemp("data") / "cityscapes", SIZE)
    prepare("cityscapes", root)
    return root


@pytest.fixture(scope="module")
def spec(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt a little of the drawn images; scored at half their size, predicted at full size."""

    def dataset(split: str) -> dict:
        places = {"img_path": f"leftImg8bit/{split}", "seg_map_path": f"gtFine/{split}"}
        return {"type": "CityscapesDataset", "data_prefix": places}

    resize = {"type": "Resize", "scale": (SIZE[1] // 2, SIZE[0] // 2), "keep_ratio": True}
    steps = [{"type": "LoadImageFromFile"}, resize, {"type": "LoadAnnotations"}, {"type": "PackSegInputs"}]
    change = {
        "model.decode_head.num_classes": 19,
        "train_dataloader.dataset.dataset": dataset("train"),
        "test_dataloader.dataset": {**dataset("val"), "pipeline": steps},
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
    about = json.loads(archive_of(submitted).with_suffix(".json").read_text())
    assert (about["run"], about["evaluation"], about["images"]) == (submitted.parent.name, "multi_scale_flip", 3)
    assert about["weights_sha256"] == trained(submitted).weights_sha256
    found = pictures(submitted)
    assert len(found) == len(STEMS)
    for stem in STEMS:
        (name,) = fnmatch.filter(found, f"{stem}*.png")
        picture = found[name]
        assert (picture.dtype, picture.shape) == (np.uint8, SIZE)
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
    assert scored(there, evaluation).aacc == 100


def test_other_settings_leave_the_official_archive_alone(spec: Path, state_counts: Callable) -> None:
    state_counts("cityscapes", lambda name, split: 3)
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
        evaluation = "single_scale" if "single_scale" in arguments else "multi_scale_flip"
        assert (about["bfloat16"], about["evaluation"]) == ("--bfloat16" in arguments, evaluation)
    assert made == [path.stat().st_mtime_ns for path in (official, official.with_suffix(".json"))]


def test_an_interrupted_call_goes_on_with_what_is_missing(
    submitted: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = archive_of(submitted).read_bytes()
    write, written = predict.save_label, []

    def full_disk(path: Path, labels: np.ndarray) -> None:
        if len(written) == 2:
            raise UserError(f"{path}: No space left on device")
        written.append(path)
        write(path, labels)

    monkeypatch.setattr(predict, "save_label", full_disk)
    assert submit(submitted) == 2
    assert "No space left" in capsys.readouterr().err
    assert archive_of(submitted).read_bytes() == before
    monkeypatch.undo()
    archive_of(submitted).unlink()
    assert submit(submitted) == 0
    assert "2 of 3 images were predicted before" in capsys.readouterr().out
    assert archive_of(submitted).read_bytes() == before
    assert not list(work_of(submitted).glob("submission*"))


def test_a_name_that_the_server_does_not_know_is_refused() -> None:
    with pytest.raises(UserError, match=r"holiday: expected <city>_<6 digits>_<6 digits>_leftImg8bit"):
        archive_name("holiday")


def test_what_cannot_be_submitted_is_told(spec: Path, tmp_path: Path, error_of: Callable) -> None:
    error = error_of(main, spec)
    assert "expected the 1525 images of the test split in leftImg8bit/test, found 3" in error
    (tmp_path / "cityscapes").mkdir()
    elsewhere = moved(spec, tmp_path / "results", data_root=str(tmp_path))
    assert "leftImg8bit_trainvaltest.zip" in error_of(main, "--subset", elsewhere)
    other = write_run(tmp_path, draw_images(tmp_path / "camvid", train=1, test=1))
    error = error_of(main, "--subset", other)
    assert "trained on generated; the server takes results on Cityscapes alone" in error
