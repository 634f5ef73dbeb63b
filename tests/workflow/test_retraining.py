"""Which runs --config retrain=... means."""

from pathlib import Path

import pytest
from finished import finish_run

from pne.errors import UserError
from pne.results import TrainResult, read_result, write_result
from pne.spec import Run, load_track
from workflows.configuration import retrained_runs


@pytest.fixture
def runs(repository: Path, tmp_path: Path) -> dict[str, Run]:
    """Four runs: two finished by today's code, one by older code, one not finished."""
    track = load_track("quick", experiments=repository / "experiments", results=tmp_path)
    four = dict(list(track.runs.items())[:4])
    for run, code in zip(list(four.values())[:3], ("today", "today", "older"), strict=True):
        finish_run(run, code)
    return four


def test_stale_runs_are_those_of_other_code(runs: dict[str, Run]) -> None:
    assert retrained_runs(["stale"], runs, "today") == {list(runs)[2]}
    assert retrained_runs(["stale"], runs, "tomorrow") == set(list(runs)[:3])


def test_a_run_that_began_with_other_code_is_stale(runs: dict[str, Run]) -> None:
    first = next(iter(runs.values()))
    path = first.directory / "train.json"
    write_result(path, read_result(path, TrainResult).model_copy(update={"earlier_code_sha256": ["older"]}))
    assert first.run in retrained_runs(["stale"], runs, "today")


def test_a_named_run_is_trained_whatever_its_code(runs: dict[str, Run]) -> None:
    first = next(iter(runs))
    assert retrained_runs([first], runs, "today") == {first}
    assert retrained_runs([first, "stale"], runs, "today") == {first, list(runs)[2]}


def test_an_unfinished_run_is_left_to_the_ordinary_training(runs: dict[str, Run]) -> None:
    assert retrained_runs([list(runs)[3]], runs, "today") == frozenset()


def test_an_unknown_run_is_an_error(runs: dict[str, Run]) -> None:
    with pytest.raises(UserError, match="--config retrain=stail: no such run; did you mean stale"):
        retrained_runs(["stail"], runs, "today")


def test_a_broken_result_is_an_error(runs: dict[str, Run]) -> None:
    path = next(iter(runs.values())).directory / "train.json"
    path.write_text("{")
    with pytest.raises(UserError, match=str(path)):
        retrained_runs(["stale"], runs, "today")
