"""The SLURM profile on a real SLURM of this machine, with two fake GPUs; `make test-cluster` runs it."""

import csv
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import slurm
from checkout import Checkout
from trainings import MARK, Watch, running_trainings

from pne.results import TrainResult, read_result
from pne.spec import load_track

pytestmark = pytest.mark.slow
PROFILE = ("--workflow-profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "5")
DEVICE = "device=auto"  # asks for a GPU; torch finds none behind the fake ones and takes the CPU
ITERATIONS = 6
SHORT = f"iterations={ITERATIONS}"
LIMIT_S = 500
MARKED = "slurm"


class Workflow:
    """A workflow that runs in the background."""

    def __init__(self, checkout: Checkout, *arguments: str) -> None:
        self.log = checkout / "workflow.log"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", MARK: MARKED}
        command = ["timeout", "-k", "20", str(LIMIT_S), sys.executable, "-m", "snakemake", *arguments]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=checkout.folder, env=environment, stdout=log, stderr=log)

    @property
    def output(self) -> str:
        return self.log.read_text()

    def end(self) -> int:
        """Wait for the end and return the exit status."""
        return self.process.wait(timeout=LIMIT_S + 30)


def wait_for(condition, what: str, seconds: float = 240):
    """Wait until something is there and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.5)
    return found


@pytest.fixture(scope="class")
def with_accounting() -> Iterator[None]:
    """A running SLURM that keeps accounts."""
    yield from running(accounting=True)


@pytest.fixture(scope="class")
def without_accounting() -> Iterator[None]:
    """A running SLURM that keeps none."""
    yield from running(accounting=False)


def running(accounting: bool) -> Iterator[None]:
    slurm.install()
    if reason := slurm.missing(accounting):
        pytest.skip(reason)
    slurm.start(accounting)
    try:
        yield
    finally:
        slurm.stop()


def runs_of(checkout: Checkout, table: str, iterations: int) -> dict[str, str]:
    """Run ids of a table by row."""
    track = load_track("quick", experiments=checkout / "experiments", iterations=iterations)
    return {key: row.runs[0] for key, row in track.tables[table].rows.items()}


def train_result(checkout: Checkout, run: str) -> TrainResult:
    return read_result(checkout / f"results/quick/runs/{run}/train.json", TrainResult)


def jobs_of(run: str, *states: str) -> list[str]:
    """Numbers of a run's jobs in the given states."""
    lines = slurm.ask("squeue", "--noheader", "--states=all", "--format=%i|%T|%k").splitlines()
    rows = [line.split("|") for line in lines]
    return [number for number, state, comment in rows if state in states and comment.endswith(run)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The checkout that the tests share, with its data drawn."""
    checkout = Checkout(tmp_path_factory.mktemp("slurm") / "checkout")
    checkout.snakemake("--cores", "2", "data/street_city/meta.json")
    return checkout


@pytest.fixture(scope="class")
def long(
    without_accounting: None, checkout: Checkout, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Checkout, str, Workflow]:
    """A run of two minutes or more under a time limit of 1 min, which grows by 1 min an attempt."""
    other = checkout.copy(tmp_path_factory.mktemp("long") / "checkout")
    base = runs_of(checkout, "contrast_form", ITERATIONS)["base_r50"]
    iterations = math.ceil(130 / train_result(checkout, base).time_s)
    run = runs_of(other, "contrast_form", iterations)["base_r50"]
    arguments = (f"run_{run}", *PROFILE, "--set-resources", "train:runtime=attempt")
    return other, run, Workflow(other, *arguments, "--config", f"iterations={iterations}", DEVICE)


@pytest.mark.usefixtures("with_accounting")
class TestWithAccounting:
    """Asked through sacct, submitted to an account."""

    def test_a_table_is_trained_by_two_jobs_at_a_time_each_with_its_own_gpu(self, checkout: Checkout) -> None:
        watch = Watch(MARKED)
        watch.start()
        account = ("--default-resources", f"slurm_account={slurm.ACCOUNT}", "mem_mb=4000", "runtime=60")
        arguments = ("table_contrast_form", *PROFILE, "--slurm-status-command", "sacct", *account)
        workflow = Workflow(checkout, *arguments, "--config", SHORT, DEVICE)
        status = workflow.end()
        seen = watch.stop()
        assert status == 0, workflow.output
        for run in runs_of(checkout, "contrast_form", ITERATIONS).values():
            assert train_result(checkout, run).iterations == ITERATIONS
        assert len(measured(checkout, "contrast_form")) == 6
        assert len({spec for trainings in seen for spec in trainings}) == 6
        assert max(len(trainings) for trainings in seen) == 2
        for trainings in seen:
            assert sorted(trainings.values()) in (["0"], ["1"], ["0", "1"])
        accounts = slurm.ask("sacct", "--noheader", "--allocations", "--format=Account,State", "--parsable2").split()
        assert accounts == [f"{slurm.ACCOUNT}|COMPLETED"] * 6


@pytest.mark.usefixtures("without_accounting")
class TestWithoutAccounting:
    """Asked through squeue. A long run is under way all the time, and reaches its time limit."""

    def test_a_cancelled_job_fails_alone(self, checkout: Checkout, long: tuple[Checkout, str, Workflow]) -> None:
        runs = runs_of(checkout, "positive_weights", ITERATIONS)
        workflow = Workflow(checkout, "table_positive_weights", *PROFILE, "--retries", "0", "--config", SHORT, DEVICE)
        number = wait_for(lambda: jobs_of(runs["logit"], "RUNNING"), "a running job")[0]
        wait_for(lambda: running_trainings(MARKED), "a training")
        slurm.ask("scancel", number)
        assert workflow.end() == 1
        assert f"SLURM-job '{number}' failed, SLURM status is: 'CANCELLED'" in workflow.output
        assert not (checkout / f"results/quick/runs/{runs['logit']}/train.json").exists()
        assert train_result(checkout, runs["without"]).iterations == ITERATIONS
        assert set(measured(checkout, "positive_weights")) == {"without", "softmax"}

    def test_a_drained_node_is_told_in_words(self, checkout: Checkout, long: tuple[Checkout, str, Workflow]) -> None:
        run = runs_of(checkout, "positive_weights", ITERATIONS)["logit"]
        node = slurm.ask("sinfo", "--noheader", "--format=%n").strip()
        slurm.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=new_disks")
        try:
            workflow = Workflow(checkout, "table_positive_weights", *PROFILE, "--config", SHORT, DEVICE)
            wait_for(lambda: jobs_of(run, "PENDING"), "a waiting job")
            told = wait_for(lambda: queue_in_words(checkout, "every node that it could use"), "SLURM's reason")
            assert f"train {run}: pending, every node that it could use is down, drained or reserved" in told
            assert f"  {node}: drain" in told
            assert "new_disks (said root at" in told
        finally:
            slurm.ask("scontrol", "update", f"nodename={node}", "state=resume")
        assert workflow.end() == 0, workflow.output
        assert set(measured(checkout, "positive_weights")) == {"without", "logit", "softmax"}

    def test_a_job_killed_by_its_time_limit_continues_from_its_checkpoint(
        self, long: tuple[Checkout, str, Workflow]
    ) -> None:
        checkout, run, workflow = long
        assert workflow.end() == 0, workflow.output
        assert "SLURM status is: 'TIMEOUT'" in workflow.output
        assert jobs_of(run, "TIMEOUT")
        assert "returned non-zero exit status 75" in workflow.output  # its checkpoint was written
        assert train_result(checkout, run).resumes == len(jobs_of(run, "TIMEOUT"))


def measured(checkout: Checkout, table: str) -> dict[str, float]:
    """Measured mIoU by row, of those rows that have one."""
    with (checkout / f"results/quick/tables/{table}.csv").open() as file:
        return {row["row"]: float(row["miou_measured"]) for row in csv.DictReader(file) if row["miou_measured"]}


def queue_in_words(checkout: Checkout, expected: str) -> str:
    told = checkout.python("-m", "workflows.queue")
    return told if expected in told else ""
