"""What runs ask of a machine."""

from pathlib import Path

import pytest

from pne.errors import UserError
from pne.resolve import load_track
from workflows.resources import ResourceTable

FILE = Path("workflows/resources.yaml")


@pytest.fixture
def table(repository: Path) -> ResourceTable:
    return ResourceTable.read(repository / FILE)


@pytest.fixture
def paper(repository: Path):
    def load(**runtime: object):
        runs = load_track("paper", experiments=repository / "experiments", runtime=runtime).runs.values()
        return next(run for run in runs if run.model == "deeplabv3_r101")

    return load


def test_time_and_memory_grow_with_the_attempt(table: ResourceTable, paper) -> None:
    run = paper()
    needs = table.of(run)
    first = [table.minutes(run, 1), table.memory_mb(run, 1)]
    assert first[0] >= run.iterations * needs.seconds_per_iteration["default"] / 60
    assert first[1] == needs.memory_mb
    assert [table.minutes(run, 3), table.memory_mb(run, 3)] == [3 * first[0], 2 * first[1]]


def test_more_gpus_need_more_cores_and_memory(table: ResourceTable, paper) -> None:
    one, four = paper(), paper(gpus=4)
    assert (table.gpus(one), table.gpus(four)) == (1, 4)
    assert table.cores(four) == 4 * table.cores(one) == 4 * (one.runtime.threads + one.runtime.workers)
    assert table.memory_mb(four) == 4 * table.memory_mb(one)


def test_a_run_on_the_cpu_asks_for_no_gpu(table: ResourceTable, paper) -> None:
    run = paper(device="cpu")
    assert table.gpus(run) == 0
    assert table.cores(run) > 0


def test_every_track_has_an_entry(table: ResourceTable, repository: Path) -> None:
    assert set(table.tracks) == {path.stem for path in (repository / "experiments/tracks").glob("*.yaml")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quick: {memory_mb: 1, overhead_minutes: 1, seconds_per_iteration: {other: 1}}", "no default"),
        ("quick: {memory_mb: 0, overhead_minutes: 1, seconds_per_iteration: {default: 1}}", "quick.memory_mb"),
        ("quick: {memory: 9}", "quick.memory"),
    ],
)
def test_mistakes_name_the_key(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "resources.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        ResourceTable.read(tmp_path / "resources.yaml")


def test_a_track_without_entry_is_an_error(tmp_path: Path, paper) -> None:
    path = tmp_path / "resources.yaml"
    path.write_text("quick: {memory_mb: 1, overhead_minutes: 1, seconds_per_iteration: {default: 1}}")
    with pytest.raises(UserError, match="no entry for track paper; add one like quick"):
        ResourceTable.read(path).minutes(paper())
