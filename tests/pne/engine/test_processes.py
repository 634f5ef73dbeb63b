"""Several processes train one run: same global batch, same samples, one set of files."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from spy_hooks import notes
from tiny_runs import MEMORY, SETTLED, final_state, scored, spied, train_in_two, train_run, trained, work_of, write_run

LAUNCH = "import sys; from pne.engine.command import launch; sys.exit(launch('pne.train', sys.argv[1:], 2))"


def test_two_processes_train_what_one_does(tmp_path: Path, data: Path) -> None:
    alone = train_run(tmp_path, data, "alone", batch_size=4, iterations=4, change=SETTLED | spied(tmp_path / "one"))
    pair = write_run(tmp_path, data, "pair", batch_size=4, iterations=4, change=SETTLED | spied(tmp_path / "two"))
    (status, told), (_, silent) = train_in_two(pair)
    assert status == 0, told

    one, two = notes(tmp_path / "one"), [notes(tmp_path / "two", rank) for rank in (0, 1)]
    assert one[0]["weights"] == two[0][0]["weights"] == two[1][0]["weights"]
    for expected, first, second in zip(one[1:], two[0][1:], two[1][1:], strict=True):
        assert len(first["images"]) == 2
        for key in ("images", "labels"):
            assert sorted(first[key] + second[key]) == sorted(expected[key])

    results = [trained(spec) for spec in (alone, pair)]
    assert [(r.provenance.world_size, r.provenance.micro_batch) for r in results] == [(1, 4), (2, 2)]
    assert results[1].losses == pytest.approx(results[0].losses, rel=1e-4)
    torch.testing.assert_close(final_state(pair), final_state(alone), rtol=1e-3, atol=1e-5)
    assert scored(pair).images == 5
    assert scored(pair).miou == pytest.approx(scored(alone).miou, abs=1.0)
    assert told.count("iteration 4/4") == 1
    assert "iteration" not in silent  # only the first process speaks


# Of each process a memory of its own.
INTERRUPTED = {"batch_size": 4, "iterations": 20, "contrast": MEMORY, "checkpoint_interval": 5, "log_interval": 10}


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """The run of two processes that nothing interrupts."""
    spec = write_run(tmp_path_factory.mktemp("through"), data, **INTERRUPTED)
    assert [status for status, _ in train_in_two(spec)] == [0, 0]
    return spec


def test_two_processes_with_contrast_stop_and_go_on(tmp_path: Path, data: Path, through: Path) -> None:
    stopped = write_run(tmp_path, data, **INTERRUPTED)
    # The command as it runs on two GPUs: it starts its processes itself.
    with subprocess.Popen([sys.executable, "-c", LAUNCH, str(stopped)]) as process:
        while not (work_of(stopped) / "iter_5.pth").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(200) == 75
    assert '"state": "interrupted"' in (work_of(stopped) / "progress.json").read_text()
    assert [status for status, _ in train_in_two(stopped)] == [0, 0]
    assert [trained(spec).resumes for spec in (through, stopped)] == [0, 1]
    assert trained(through).weights_sha256 == trained(stopped).weights_sha256


def test_any_process_may_be_killed_at_any_moment_of_a_checkpoint(tmp_path: Path, data: Path, through: Path) -> None:
    change = {**spied(tmp_path), "custom_hooks": [{"type": "KillHook"}]}
    spec = write_run(tmp_path, data, change=change, **INTERRUPTED)
    folder, told = work_of(spec), {}
    for kill in ("0 last 5", "1 amid 10", "0 last 10", "1 last 15", "0 after 20"):
        ends = train_in_two(spec, KILL=kill)
        statuses, told[kill] = [status for status, _ in ends], "".join(text for _, text in ends)
        assert statuses[int(kill[0])] == -signal.SIGKILL
        assert statuses[1 - int(kill[0])] > 0
        if kill == "0 last 5":
            assert [path.name for path in folder.glob("*iter_*")] == ["iter_5.rank1.pth"]
    assert "iter_10.rank1.pth: no such checkpoint; using the checkpoint before it" in told["0 last 10"]
    # By then the other process has written anew, but the first one's file is that of the attempt before.
    assert "iter_10.rank1.pth: not of the checkpoint of the first process" in told["1 last 15"]
    assert [status for status, _ in train_in_two(spec)] == [0, 0]
    assert trained(spec).resumes == 3
    assert trained(spec).weights_sha256 == trained(through).weights_sha256
    assert not list(folder.glob("*iter_*"))


def test_a_batch_that_cannot_be_split_is_refused(tmp_path: Path, data: Path) -> None:
    for status, told in train_in_two(write_run(tmp_path, data, batch_size=3)):
        assert status != 0
        assert "batch_size: 3 images cannot be split evenly over 2 processes; use one of 1, 3" in told
