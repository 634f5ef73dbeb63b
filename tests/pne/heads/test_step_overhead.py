"""The benchmark of a whole training step runs on the CPU, and its arithmetic and its inputs are right."""

import json
from pathlib import Path

import pytest

from benchmarks import step_overhead as benchmark

VARIANTS = ["base", "projection", "paper", "authors", "asymmetric", "cipc"]


def run(out: Path, *arguments: str) -> list[dict]:
    benchmark.main(["--device", "cpu", "--tiny", "--steps", "2", "--warmup", "1", "--out", str(out), *arguments])
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_times_every_model_and_variant(tmp_path: Path, capsys, precision: str) -> None:
    models = list(benchmark.CONFIGS) if precision == "bf16" else ["deeplabv3_r101"]
    lines = run(tmp_path / "new" / "lines.jsonl", "--precisions", precision, "--models", *models)
    assert [line["model"] for line in lines] == [model for model in models for _ in VARIANTS]
    assert {line["precision"] for line in lines} == {precision}
    assert [line["variant"] for line in lines] == VARIANTS * len(models)
    assert all(line["time_s"] > 0 and line["steps"] == 2 and line["tiny"] and line["device"] for line in lines)
    assert all(line["ratio"] == pytest.approx(1) for line in lines if line["variant"] == "base")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == lines


def test_says_what_the_budget_leaves_out(tmp_path: Path) -> None:
    arguments = ["--models", "deeplabv3_r101", "--precisions", "fp32", "--budget-s", "0"]
    (line,) = run(tmp_path / "lines.jsonl", *arguments)
    assert line["skipped"].startswith("needs ")


def test_slow_first_steps_leave_no_case_out(tmp_path: Path, monkeypatch) -> None:
    """The first steps of a CUDA device try algorithms and may take a hundred times as long."""
    seconds = iter([1000.0] * len(VARIANTS))
    monkeypatch.setattr(benchmark, "make_step", lambda *_: lambda: next(seconds, 0.001))
    monkeypatch.setattr(benchmark, "build_variants", lambda *_: dict.fromkeys(VARIANTS))
    arguments = ["--models", "deeplabv3_r101", "--precisions", "fp32", "--warmup", "3", "--budget-s", "60"]
    lines = run(tmp_path / "lines.jsonl", *arguments)
    assert [line["time_s"] for line in lines] == [pytest.approx(0.001)] * len(VARIANTS)


def test_refuses_a_device_that_is_not_there(monkeypatch, capsys) -> None:
    monkeypatch.setattr(benchmark.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        benchmark.main([])
    assert "torch finds no CUDA device; run with --device cpu --tiny" in capsys.readouterr().err


def test_variants_share_the_weights_and_see_errors_in_a_tenth_of_the_pixels() -> None:
    models = benchmark.build_variants(benchmark.model_config("ocrnet_hrnetv2_w48", tiny=True), "cpu", memory_size=20)
    shared = dict(models["base"].named_parameters())
    for name, model in models.items():
        own = dict(model.named_parameters())
        assert all(own[key] is parameter for key, parameter in shared.items())
        assert (own.keys() == shared.keys()) == (name == "base")
    assert len({id(model.decode_head[-1].contrast) for name, model in models.items() if name != "base"}) == 5
    labels = benchmark.labels_in_blocks((128, 256), "cpu")
    logits = benchmark.logits_with_errors(labels, (32, 64))
    wrong = logits.argmax(1) != labels[:, ::4, ::4]
    assert 0.08 < wrong.float().mean().item() < 0.12
    shift = (logits.argmax(1) - labels[:, ::4, ::4]) % benchmark.CLASSES
    assert (shift[wrong] <= benchmark.CONFUSIONS).float().mean() > 0.99


def test_summary_of_times() -> None:
    summary = benchmark.summary("paper", {"base": [1.0, 2.0, 3.0], "paper": [2.0, 3.0, 6.0]})
    assert summary["time_s"] == 3.0
    assert summary["ratio"] == pytest.approx(1.5)
    assert summary["paired_ratio"] == pytest.approx(2.0)
    assert summary["time_quartiles_s"] == [2.5, 4.5]
