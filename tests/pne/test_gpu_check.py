"""What a GPU is checked for: every part runs on the CPU in tiny mode, and judges as it should."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks.gpu_check import __main__ as command
from benchmarks.gpu_check.engine import differences
from benchmarks.gpu_check.loss import waits
from benchmarks.gpu_check.report import Report

CPU = torch.device("cpu")
EXPECTED = {  # some of the lines of each part, and whether they are judged
    "loss": {"waits of paper, tiny": True, "waits of cipc_memory_20, tiny": True},
    "step": {"step of deeplabv3_r101 with paper": None, "step of deeplabv3_r18 with paper": None},
    "engine": {"restored state: differences": True, "mean difference of losses after the resume": True},
    "loader": {"milliseconds per batch of 4, 0 workers": None},
    "gradients": {"bf16 gradient of paper": True, "fp16 gradient of a network, paper: is finite": True},
    "sharing": {"two jobs end": True, "jobs that waited": True, "overlap of two jobs (s)": True},
    "memory": {"too large a batch fails": True, "the advice leads to a training that ends": True},
    "evaluation": {"camvid_tiny cityscapes deeplabv3_r50, pne: largest IoU difference (%)": True},
}


@pytest.fixture
def settings(tmp_path: Path) -> argparse.Namespace:
    return command.parser().parse_args(["--device", "cpu", "--tiny", "--out", str(tmp_path / "lines.jsonl")])


@pytest.fixture(autouse=True)
def _kept_settings() -> None:
    """Parts set what CUDA rounds to, and random streams; other tests find them as they were."""
    with torch.random.fork_rng(devices=[]), torch.backends.cudnn.flags():
        products = torch.backends.cuda.matmul.allow_tf32
        yield
        torch.backends.cuda.matmul.allow_tf32 = products


@pytest.mark.parametrize("part", command.PARTS)
def test_every_part_runs_on_a_cpu(part: str, settings: argparse.Namespace) -> None:
    assert command.carry_out(part, settings, limit=600) == 0
    lines = command.read(settings.out)
    found = {line["what"]: line.get("ok") for line in lines}
    assert EXPECTED[part].items() <= found.items()
    assert [what for what, ok in found.items() if ok is False] == []
    about = ("device", "torch", "commit", "tiny")
    assert all(line["part"] == part and all(key in line for key in about) for line in lines)


def test_the_first_parts_end_within_four_minutes() -> None:
    assert list(command.PARTS)[:4] == ["loss", "step", "engine", "loader"]
    assert sum(list(command.PARTS.values())[:4]) <= 240


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report("part", CPU, False, tmp_path, tmp_path / "lines.jsonl", time.monotonic() + 60)


def test_targets_are_compared(report: Report) -> None:
    report.check("met", 1.02, at_most=1.02)
    report.check("missed", 1.03, at_most=1.02)
    report.check("not a number", float("nan"), at_most=1.02)
    report.check("too slow", 1.4, at_least=1.5)
    report.check("other", [0, 1], equal=[0, 0])
    report.check("a time on a CPU", 1.03, at_most=1.02, timing=True)
    report.skip("left out", "no time")
    with report.attempt("broken"):
        raise ValueError("reason\nmore")
    assert report.failed
    summary = command.summarise(command.read(report.out))
    assert summary["met"] == ["part: met"]
    assert list(summary["missed"]) == [f"part: {what}" for what in ("missed", "not a number", "too slow", "other")]
    assert summary["missed"]["part: missed"] == "1.03, expected <= 1.02"
    assert summary["failed"] == {"part: broken": "ValueError: reason"}
    assert list(summary["not judged"]) == ["part: a time on a CPU"]
    assert summary["skipped"]["part: left out"] == "no time"
    assert summary["skipped"]["loss"] == "not carried out"


def test_an_error_of_cuda_ends_the_part(report: Report) -> None:
    with pytest.raises(RuntimeError, match="CUDA error"), report.attempt("broken"):
        raise RuntimeError("CUDA error: device-side assert triggered")


def test_waiting_operations_are_counted() -> None:
    values = torch.tensor([0.0, 1.0], requires_grad=True)
    assert waits(lambda: (values.sum().item(), values[values > 0].sum().backward()), CPU)["_local_scalar_dense"] == 1
    assert waits(lambda: (2 * values).sum().backward(), CPU) == {}


def test_states_that_differ_are_told_apart() -> None:
    state = {"a": [torch.ones(2), 3], "b": {"c": "d"}}
    assert differences(state, {"a": [torch.ones(2), 3], "b": {"c": "d"}}) == []
    assert differences(state, {"a": [torch.tensor([1.0, 2.0]), 4], "b": {}}) == ["/a/0", "/a/1", "/b"]
    assert differences(state, {"a": [torch.ones(2).double(), 3]}) == [""]


def start_as(statuses: dict[str, int]) -> Callable[..., dict]:
    """Return a stand-in for the process of a part: it writes one line and ends with a status."""

    def start(name: str, args: argparse.Namespace, limit: float) -> dict:
        where = {"device": "", "torch": "", "commit": ""}
        command.append(args.out, {"part": name, **where, "what": "x", "value": limit, "target": "<= 9", "ok": True})
        return {"status": statuses[name]} | ({"error": "broken"} if statuses[name] else {})

    return start


def test_parts_are_repeated_alone_and_the_exit_status_is_that_of_the_summary(
    settings: argparse.Namespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for statuses in ({"loss": 0, "step": 1}, {"step": 0}):
        monkeypatch.setattr(command.run_parts, "__defaults__", (start_as(statuses),))
        words = ["--device", "cpu", "--tiny", "--out", str(settings.out), "--parts", *statuses]
        assert command.main(words) == statuses["step"]
        *lines, summary = command.read(settings.out)
        ends = [(part, what) for part in ("loss", "step") for what in ("x", "end")]
        assert [(line["part"], line["what"]) for line in lines] == ends
        assert (summary["what"], summary["met"]) == ("summary", ["loss: x", "step: x"])
        assert summary["failed"] == ({"step": "broken"} if statuses["step"] else {})
        assert ("--parts step\n" in capsys.readouterr().out) == bool(statuses["step"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        command.main([])
    assert "torch finds no CUDA device" in capsys.readouterr().err


HANGS = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("script", "limit", "expected"),
    [(HANGS, 3, (None, "stopped after 3 s")), ("import sys; sys.exit('no such thing')", 60, (1, "status 1"))],
)
def test_a_part_that_breaks_is_told_and_one_that_hangs_is_stopped_with_all_that_it_started(
    script: str, limit: float, expected: tuple, settings: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = settings.out.with_name("part.py")
    part.write_text(script)
    monkeypatch.setattr(command, "__file__", str(part))
    ended = command.in_process_of_its_own("loss", settings, limit=limit)
    assert (ended["status"], ended["error"]) == expected
    [line] = ended["log"]
    assert line == "no such thing" or line.isdecimal()
    status = Path(f"/proc/{line}/status")
    assert any(not status.exists() or "State:\tZ" in status.read_text() or time.sleep(0.01) for _ in range(1000))
