"""What a dry run needs, refuses and says."""

import pytest
from checkout import Checkout

NO_TORCH = """
import sys
from snakemake.cli import main
try:
    main(["--dry-run", "--quiet", "all"])
except SystemExit as end:
    assert not end.code, end.code
heavy = sorted({name.split(".")[0] for name in sys.modules} & {"torch", "mmseg", "mmcv", "matplotlib", "sklearn"})
print("heavy:", heavy)
"""


def test_no_torch_is_loaded_to_plan_the_work(checkout: Checkout) -> None:
    assert "heavy: []" in checkout.python("-c", NO_TORCH)


def test_the_paper_track_with_three_seeds_is_planned_as_a_whole(checkout: Checkout) -> None:
    plan = checkout.plan("tables", "--config", "track=paper", "seeds=0,1,2", "data_root=/data")
    assert len(plan.of("train")) == len(checkout.runs("paper")) * 3 >= 126
    assert plan.jobs["examine_cityscapes"] == 1


def test_each_table_has_a_target_that_asks_for_its_own_runs(checkout: Checkout) -> None:
    plan = checkout.plan("table_contrast_form")
    assert len(plan.of("train")) == 6
    assert not plan.of("evaluate")  # single-scale, and that comes with training
    assert plan.of("print") == {"contrast_form"}


def test_published_tables_train_nothing(checkout: Checkout) -> None:
    plan = checkout.plan("published")
    assert set(plan.jobs) == {"published", "published_table"}
    assert plan.jobs["published_table"] == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tables", "--config", "trak=quick"), "--config trak=quick: no such key; did you mean track?"),
        (("tables", "--config", "track=quik"), "no track 'quik'; did you mean quick?"),
        (("table_ade20k", "--config", "track=camvid"), "track camvid does not offer table ade20k"),
        (("results/quick/runs/nonsense/train.json",), "nonsense is no run of track quick as it is declared now"),
    ],
)
def test_mistakes_are_told_before_anything_runs(checkout: Checkout, arguments: tuple[str, ...], message: str) -> None:
    output = checkout.snakemake("--dry-run", *arguments, accept=(1,))
    assert message in output
    assert "Traceback (most recent call last)" not in output


def test_a_wrong_declaration_is_told_with_its_place(checkout: Checkout) -> None:
    checkout.replace("experiments/tables/hyperparameters.yaml", "temperature: 0.3}", "temprature: 0.3}")
    output = checkout.snakemake("--dry-run", accept=(1,))
    assert "experiments/tables/hyperparameters.yaml: rows.temperature_0_3: contrast.temprature" in output
