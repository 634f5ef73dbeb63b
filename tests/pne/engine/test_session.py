"""Training runs from their specs to published results."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from mmseg.models import EncoderDecoder
from spy_hooks import notes
from tiny_runs import CONTRAST, Training, history_of, progress_of, scored, train_run, trained, work_of, write_run

from pne.counts import read_confusion
from pne.engine import checkpoint, session
from pne.engine.locks import held
from pne.files import sha256
from pne.results import TrainResult, read_result
from pne.train import main


def test_a_run_leaves_whole_results(finished: dict[str, Path], tmp_path: Path) -> None:
    for name, contrast in (("base", False), ("pne", True)):
        spec = finished[name]
        result, score = trained(spec), scored(spec)
        assert {path.name for path in spec.parent.iterdir()} == {
            *("spec.yaml", "config.py", "train.json", "history.jsonl"),
            *("single_scale.json", "single_scale.confusion.npz"),
        }
        assert {path.name for path in work_of(spec).iterdir()} == {"final.pth", "progress.json", "lock"}
        assert result.weights_sha256 == score.weights_sha256 == sha256(work_of(spec) / "final.pth")
        assert (result.iterations, result.resumes, score.images) == (12, 0, 5)
        assert result.provenance.micro_batch == 2
        assert len(result.provenance.dataset_fingerprint) == 64
        assert result.dataset_complete is False  # the data were drawn by the dozen under CamVid's layout
        assert 0 < result.data_s < result.time_s
        assert result.peak_memory_mib > 100
        assert (result.contrast is not None) == ("loss_contrast" in result.losses) == contrast
        confusion = read_confusion(spec.parent / "single_scale.confusion.npz")
        assert confusion.names == ("000", "001", "002", "003", "004")
        assert confusion.total().sum() == 5 * 38 * 60  # two lines of each image are ignored

    older = json.loads((finished["base"].parent / "train.json").read_text())  # of before waits were recorded
    del older["data_s"]
    (tmp_path / "train.json").write_text(json.dumps(older))
    assert read_result(tmp_path / "train.json", TrainResult).data_s is None


def test_history_and_summary_say_what_the_training_did(finished: dict[str, Path]) -> None:
    lines = history_of(finished["pne"])
    assert [line["iter"] for line in lines] == [2, 4, 6, 8, 10, 12]
    expected = {"iter", "lr", "time_s", "data_s", "loss", "decode.loss_ce", "loss_contrast", "contrast_anchors"}
    assert expected <= set(lines[0])
    assert lines[0]["lr"] > lines[-1]["lr"]

    summary = trained(finished["pne"]).contrast
    assert summary.iterations == 11  # without the first tenth
    assert set(summary.final_statistics) == {
        *("loss_contrast", "anchors", "sets", "positive_similarity", "negative_similarity"),
        *("weight_mean", "weight_std", "gradient_norm"),
    }
    assert summary.healthy == (summary.active_fraction >= 0.9)

    assert trained(finished["base"]).parameters == trained(finished["pne"]).parameters


def test_base_and_contrast_run_of_one_seed_see_the_same_another_seed_another_course(finished: dict[str, Path]) -> None:
    base, with_pne, other = (notes(finished["folder"] / name) for name in ("base", "pne", "seed1"))
    assert len(base) == 13
    assert base == with_pne  # start weights, batches, augmentation, dropout
    assert all(a["images"] != b["images"] for a, b in zip(base[1:], other[1:], strict=True))
    assert base[0]["weights"] != other[0]["weights"]
    assert len({trained(finished[name]).weights_sha256 for name in ("base", "pne", "seed1")}) == 3


def test_a_finished_run_returns_at_once_and_a_lost_score_is_made_again(
    copied: Path, capsys: pytest.CaptureFixture
) -> None:
    before, score = (copied.parent / "train.json").stat().st_mtime_ns, scored(copied)
    assert main([str(copied)]) == 0
    assert "pne: finished already" in capsys.readouterr().out
    (copied.parent / "single_scale.confusion.npz").unlink()
    assert main([str(copied)]) == 0
    assert (copied.parent / "train.json").stat().st_mtime_ns == before
    assert (scored(copied).class_iou, scored(copied).counts_sha256) == (score.class_iou, score.counts_sha256)


def test_runs_after_each_other_end_as_in_processes_of_their_own(
    finished: dict[str, Path], tmp_path: Path, data: Path
) -> None:
    again = write_run(tmp_path, data, "seed1", iterations=12, seed=1, log_interval=5, checkpoint_interval=7, workers=2)
    assert Training(again).finish()[0] == 0
    assert trained(again).weights_sha256 == trained(finished["seed1"]).weights_sha256  # the third of its process
    assert scored(again).counts_sha256 == scored(finished["seed1"]).counts_sha256


def test_a_loss_that_is_not_finite_stops_the_run(
    tmp_path: Path, data: Path, error_of: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate = {"optim_wrapper.optimizer.lr": 1e30, "param_scheduler": []}
    spec = write_run(tmp_path, data, change=rate, log_interval=4, checkpoint_interval=50, iterations=20)
    error, progress = error_of(main, spec, status=1), progress_of(spec)
    assert "the loss is not finite: loss = nan, decode.loss_ce = nan" in error
    assert progress["state"] == "failed"
    assert progress["error"].startswith("the loss is not finite: loss = nan")
    assert 1 <= progress["iteration"] <= 4
    assert f"iteration {progress['iteration']}: the loss" in error
    assert not (spec.parent / "train.json").exists()
    monkeypatch.setenv("PNE_ATTEMPT", "2")  # by a scheduler that tries again
    again = f"{progress['error']} (the first attempt's; another one does not mend it)"
    assert again in error_of(main, spec, status=1)
    assert progress_of(spec) == progress  # it did not begin


@pytest.mark.parametrize("state", [{"state": "running"}, {"state": "failed", "lasting": False}])
def test_another_attempt_goes_on_after_what_a_retry_mends(
    state: dict, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_run(tmp_path, data, iterations=1)
    work_of(spec).mkdir(parents=True)
    (work_of(spec) / "progress.json").write_text(json.dumps({"error": "Input/output error", **state}))
    monkeypatch.setenv("PNE_ATTEMPT", "2")
    assert main([str(spec)]) == 0


FEWER = "with 6 images per forward pass; try fewer (--micro-batch 3, or micro_batch=3 in --config), more"
ALONE = "with 3 images per forward pass; try more GPUs, or GPUs with more memory"
PREDICTING = "in predicting; try --bfloat16 (of pne.evaluate and pne.submission), a GPU with more memory, or the"


@pytest.mark.parametrize(
    ("part", "batch", "advice"),
    [("extract_feat", 6, FEWER), ("extract_feat", 3, ALONE), ("predict", 2, PREDICTING)],
)
def test_too_little_memory_is_told_with_what_helps_there(
    part: str, batch: int, advice: str, tmp_path: Path, data: Path, error_of: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(EncoderDecoder, part, fail)
    monkeypatch.setattr(session, "check_buildable", lambda *arguments: None)  # it passes shapes through the network
    spec = write_run(tmp_path, data, iterations=1, batch_size=batch)
    error, told = error_of(main, spec, status=1), progress_of(spec)["error"]
    assert told.startswith(f"out of memory {advice}")
    assert told.endswith("(OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.)")
    assert told in error


def test_a_misspelt_argument_is_named_before_any_iteration(tmp_path: Path, data: Path, error_of: Callable) -> None:
    spec = write_run(tmp_path, data, change={"model.decode_head.dropot": 0.1})
    (line,) = error_of(main, spec).splitlines()
    assert line.startswith(f"error: {spec.with_name('config.py')}: model.decode_head: ")
    assert "unexpected keyword argument 'dropot'; python -m pne.spec check --build names" in line
    assert not list(work_of(spec).glob("iter_*.pth"))


def test_weights_that_are_not_finite_never_reach_a_checkpoint(tmp_path: Path, data: Path, error_of: Callable) -> None:
    rate = {"optim_wrapper.optimizer.lr": 1e38, "optim_wrapper.optimizer.weight_decay": 1e30, "param_scheduler": []}
    spec = write_run(tmp_path, data, change=rate, checkpoint_interval=1, iterations=4)
    assert "not finite" in error_of(main, spec, status=1)
    for iteration in checkpoint.iterations(work_of(spec)):
        state = checkpoint.load(checkpoint.path_of(work_of(spec), iteration))["model"]
        assert all(value.isfinite().all() for value in state.values())


def test_keep_going_trains_what_can_be_trained(tmp_path: Path, data: Path, error_of: Callable) -> None:
    broken = write_run(tmp_path, tmp_path / "nowhere", "broken")
    whole = write_run(tmp_path, data, "whole", iterations=2)
    error_of(main, broken, whole)
    assert not (whole.parent / "train.json").exists()
    assert f"error: {tmp_path / 'nowhere'}" in error_of(main, "--keep-going", broken, whole)
    assert trained(whole).iterations == 2


def test_specs_that_cannot_be_trained_are_told(tmp_path: Path, data: Path, error_of: Callable) -> None:
    spec, moved = write_run(tmp_path, data), tmp_path / "moved"
    with held(work_of(spec)):
        assert f"process {os.getpid()}" in error_of(main, spec)
    spec.parent.rename(moved)
    assert "the spec says its results go to" in error_of(main, moved / "spec.yaml")
    assert str(spec) in error_of(main, spec)


BROKEN = [
    ("img_dir/train", False, 0),
    ("ann_dir/train", False, 2),
    ("ann_dir/train", True, 0),
    ("ann_dir/test", False, 2),
]


@pytest.mark.parametrize(("folder", "cached", "workers"), BROKEN)
def test_a_file_that_breaks_after_the_examination_is_named(
    folder: str, cached: bool, workers: int, tmp_path: Path, data: Path, error_of: Callable, monkeypatch
) -> None:
    broken = sorted(Path(shutil.copytree(data, tmp_path / "camvid"), folder).iterdir())[1]
    examine = session.fingerprint

    def examine_and_break(*arguments: object) -> str:
        found = examine(*arguments)
        broken.write_bytes(broken.read_bytes()[:40])
        return found

    monkeypatch.setattr(session, "fingerprint", examine_and_break)
    change = {"train_dataloader.dataset.dataset.cache_data": cached, "test_dataloader.dataset.cache_data": cached}
    error = error_of(main, write_run(tmp_path, tmp_path / "camvid", change=change, iterations=4, workers=workers))
    assert error.startswith("error: ")
    assert str(broken) in error.splitlines()[0]
    assert "put the file back" in error


def test_bfloat16_trains_on_the_cpu_too(finished: dict[str, Path], tmp_path: Path, data: Path) -> None:
    amp = {"optim_wrapper.type": "AmpOptimWrapper", "optim_wrapper.dtype": "bfloat16"}
    spec = train_run(tmp_path, data, iterations=12, contrast=CONTRAST, precision="bf16", change=amp)
    state = checkpoint.load(work_of(spec) / "final.pth")["state_dict"]
    assert {value.dtype for value in state.values()} == {torch.float32, torch.int64}
    assert trained(spec).weights_sha256 != trained(finished["pne"]).weights_sha256


def test_without_kept_weights_all_evaluations_end_with_training_and_complete_data_are_said_to_be(
    tmp_path: Path, data: Path, state_counts: Callable
) -> None:
    state_counts("camvid", lambda name, split: {"train": 8, "val": 0, "test": 5}[name])
    asked = ["single_scale", "multi_scale_flip"]
    spec = train_run(tmp_path, data, iterations=2, evaluations=asked, save_work=False)
    assert trained(spec).dataset_complete is True
    for name in asked:
        assert scored(spec, name).weights_sha256 == trained(spec).weights_sha256
    assert not (work_of(spec) / "final.pth").exists()
