"""Keys and values of --config, the options that other commands get from them, and which runs ``retrain`` means."""

from pathlib import Path

import pytest
from finished import finish_run

from pne.errors import UserError
from pne.results import TrainResult, read_result, write_result
from pne.spec import Run, load_track
from workflows.configuration import identity_options, read_configuration, retrained_runs, spec_options


def test_nothing_said_is_the_quick_track_as_declared() -> None:
    configuration = read_configuration({})
    assert configuration.track == "quick"
    assert configuration.retrain == []
    assert set(configuration.track_arguments.values()) == {None}
    assert identity_options(configuration) == spec_options(configuration) == "--track quick"


@pytest.mark.parametrize(
    ("value", "seeds"), [([0, 1, 2], [0, 1, 2]), ("0,1,2", [0, 1, 2]), ("0, 1, 2", [0, 1, 2]), (0, [0])]
)
def test_seeds_come_as_a_list_or_as_text(value: object, seeds: list[int]) -> None:
    configuration = read_configuration({"seeds": value})
    assert configuration.seeds == seeds
    assert identity_options(configuration) == spec_options(configuration)
    assert identity_options(configuration) == f"--track quick --seeds {' '.join(map(str, seeds))}"


def test_options_reach_the_commands_quoted() -> None:
    values = {"data_root": "/my data", "iterations": 4, "device": "cuda", "workers": 0, "checkpoint_interval": 9}
    configuration = read_configuration(values)
    assert configuration.runtime == {"device": "cuda", "workers": 0, "checkpoint_interval": 9}
    identity = "--track quick --data-root '/my data' --iterations 4"
    assert identity_options(configuration) == identity
    assert spec_options(configuration) == f"{identity} --runtime device=cuda workers=0 checkpoint_interval=9"


def test_retrain_takes_several_runs() -> None:
    assert read_configuration({"retrain": "a-1,b-2"}).retrain == ["a-1", "b-2"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"datarot": "/data"}, "--config datarot: unknown key; did you mean data_root?"),
        ({"seeds": "0,one"}, "--config seeds.1: Input should be a valid integer"),
        ({"seeds": []}, "--config seeds: Value should have at least 1 item"),
        ({"gpus": 0}, "--config gpus: Input should be greater than or equal to 1; got 0"),
        ({"device": "tpu"}, "--config device: Input should be 'auto', 'cpu' or 'cuda'; got 'tpu'"),
        ({"iterations": -3}, "--config iterations: Input should be greater than or equal to 1; got -3"),
    ],
)
def test_mistakes_name_the_key_and_what_may_stand_there(values: dict, message: str) -> None:
    with pytest.raises(UserError) as error:
        read_configuration(values)
    assert message in str(error.value)


@pytest.fixture
def runs(repository: Path, tmp_path: Path) -> dict[str, Run]:
    """Four runs: two finished by today's code, one by older code, one not finished."""
    track = load_track("quick", experiments=repository / "experiments", results=tmp_path)
    four = dict(list(track.runs.items())[:4])
    for run, code in zip(list(four.values())[:3], ("today", "today", "older"), strict=True):
        finish_run(run, code)
    return four


def test_stale_runs_are_those_of_other_code(runs: dict[str, Run]) -> None:
    assert retrained_runs(["stale"], runs, lambda run: "today") == {list(runs)[2]}
    assert retrained_runs(["stale"], runs, lambda run: "tomorrow") == set(list(runs)[:3])


def test_a_run_that_began_with_other_code_is_stale(runs: dict[str, Run]) -> None:
    first = next(iter(runs.values()))
    path = first.directory / "train.json"
    write_result(path, read_result(path, TrainResult).model_copy(update={"earlier_code_sha256": ["older"]}))
    assert first.run in retrained_runs(["stale"], runs, lambda run: "today")


def test_a_named_run_is_trained_whatever_its_code(runs: dict[str, Run]) -> None:
    first = next(iter(runs))
    assert retrained_runs([first], runs, lambda run: "today") == {first}
    assert retrained_runs([first, "stale"], runs, lambda run: "today") == {first, list(runs)[2]}


def test_an_unfinished_run_is_left_to_the_ordinary_training(runs: dict[str, Run]) -> None:
    assert retrained_runs([list(runs)[3]], runs, lambda run: "today") == frozenset()


def test_an_unknown_run_is_an_error(runs: dict[str, Run]) -> None:
    with pytest.raises(UserError, match="--config retrain=stail: no such run; did you mean stale"):
        retrained_runs(["stail"], runs, lambda run: "today")


def test_a_broken_result_is_an_error(runs: dict[str, Run]) -> None:
    path = next(iter(runs.values())).directory / "train.json"
    path.write_text("{")
    with pytest.raises(UserError, match=str(path)):
        retrained_runs(["stale"], runs, lambda run: "today")
