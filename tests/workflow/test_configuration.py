"""Keys and values of --config."""

import pytest

from pne.errors import UserError
from workflows.configuration import identity_options, read_configuration, spec_options


def test_nothing_said_is_the_quick_track_as_declared() -> None:
    configuration = read_configuration({})
    assert configuration.track == "quick"
    assert configuration.retrain == []
    assert set(configuration.track_arguments.values()) == {None}
    assert identity_options(configuration) == spec_options(configuration) == "--track quick"


@pytest.mark.parametrize("value", [[0, 1, 2], "0,1,2", "0, 1, 2"])
def test_seeds_come_as_a_list_or_as_text(value: object) -> None:
    configuration = read_configuration({"seeds": value})
    assert configuration.seeds == [0, 1, 2]
    assert identity_options(configuration) == "--track quick --seeds 0,1,2"
    assert spec_options(configuration) == "--track quick --seeds 0 1 2"


def test_a_single_number_is_one_seed() -> None:
    assert read_configuration({"seeds": 0}).seeds == [0]
    assert identity_options(read_configuration({"seeds": 0})) == "--track quick --seeds 0"


def test_options_reach_the_commands_quoted() -> None:
    configuration = read_configuration({"data_root": "/my data", "iterations": 4, "device": "cuda", "workers": 0})
    assert configuration.runtime == {"device": "cuda", "workers": 0}
    assert identity_options(configuration) == "--track quick --data-root '/my data' --iterations 4"
    assert spec_options(configuration).endswith("--runtime device=cuda workers=0")


def test_retrain_takes_several_runs() -> None:
    assert read_configuration({"retrain": "a-1,b-2"}).retrain == ["a-1", "b-2"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"datarot": "/data"}, "--config datarot=/data: no such key; did you mean data_root?"),
        ({"seeds": "0,one"}, "--config seeds=0,one: Input should be a valid integer"),
        ({"seeds": []}, "--config seeds="),
        ({"gpus": 0}, "--config gpus=0: Input should be greater than or equal to 1; gpus is GPUs of each run"),
        ({"device": "tpu"}, "--config device=tpu: Input should be 'auto', 'cpu' or 'cuda'"),
        ({"iterations": -3}, "--config iterations=-3"),
        ({"retrain": "a,a"}, "a run is named twice"),
    ],
)
def test_mistakes_name_the_key_and_what_may_stand_there(values: dict, message: str) -> None:
    with pytest.raises(UserError) as error:
        read_configuration(values)
    assert message in str(error.value)
