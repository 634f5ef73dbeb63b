"""What trains and what does not, on a track whose every run is finished."""

from pathlib import Path

from checkout import Checkout

from pne.spec import ResolvedTable, load_track

COMMENTED = (
    "experiments/models/tiny_deeplabv3_r18.py",
    "experiments/schedules/street_100.py",
    "experiments/datasets/street_city.py",
    "experiments/contrast/pne.yaml",
    "pne/losses/__init__.py",
    "pne/train.py",
    "pne/spec/compose.py",
    "workflows/rules/runs.smk",
    "Snakefile",
)


def tables_of(checkout: Checkout) -> dict[str, ResolvedTable]:
    return load_track("quick", experiments=checkout / "experiments").tables


def runs_of_table(checkout: Checkout, name: str) -> set[str]:
    return {run for row in tables_of(checkout)[name].rows.values() for run in row.runs.values()}


def append_comment(path: Path) -> None:
    with path.open("a") as file:
        file.write("\n# a comment\n")


def test_a_finished_track_has_nothing_to_do(finished: Checkout) -> None:
    assert finished.plan().empty


def test_a_caption_prints_its_table_and_trains_nothing(finished: Checkout) -> None:
    finished.replace("experiments/tables/construction.yaml", "caption: ", "caption: Another one. ")
    plan = finished.plan()
    assert plan.jobs == {"table": 1, "tables": 1}
    assert plan.of("print") == {"construction"}


def test_an_entered_score_prints_tables_and_claims_and_trains_nothing(finished: Checkout) -> None:
    append_comment(finished / "experiments/external.yaml")
    assert set(finished.plan("tables", "claims").jobs) == {"table", "tables", "judge", "claims"}


def test_a_table_script_prints_tables_and_trains_nothing(finished: Checkout) -> None:
    append_comment(finished / "analysis/tables/layout.py")
    assert set(finished.plan().jobs) == {"table", "tables"}


def test_comments_and_figure_scripts_change_nothing(finished: Checkout) -> None:
    for path in COMMENTED:
        append_comment(finished / path)
    (finished / "analysis" / "figures").mkdir(exist_ok=True)
    (finished / "analysis" / "figures" / "another.py").write_text("COLOUR = 'red'\n")
    assert finished.plan().empty


def test_one_hyper_parameter_trains_the_rows_that_use_it_and_no_other(finished: Checkout) -> None:
    before = finished.runs()
    finished.replace("experiments/tables/hyperparameters.yaml", "temperature: 0.3}", "temperature: 0.35}")
    after = finished.runs()
    plan = finished.plan()
    assert len(after - before) == len(before - after) == 1
    assert plan.of("train") == after - before
    assert plan.of("print") == {"hyperparameters"}
    assert not plan.of("evaluate")


def test_a_contrast_option_trains_every_row_that_inherits_it(finished: Checkout) -> None:
    before = finished.runs()
    finished.replace("experiments/contrast/asymmetric.yaml", "weight: 1.3", "weight: 1.5")
    after = finished.runs()
    changed = after - before
    assert changed
    assert all("asymmetric" in run for run in changed)
    assert finished.plan().of("train") == changed


def test_another_seed_trains_its_own_runs_alone(finished: Checkout) -> None:
    plan = finished.plan("tables", "--config", "seeds=0,1")
    assert len(plan.of("train")) == len(finished.runs())
    assert all("-s1-" in run for run in plan.of("train"))


def test_another_evaluation_does_not_train(finished: Checkout) -> None:
    finished.replace(
        "experiments/tables/positive_weights.yaml", "evaluation: single_scale", "evaluation: multi_scale_flip"
    )
    plan = finished.plan()
    assert not plan.of("train")
    assert len(plan.of("evaluate")) == 3
    assert plan.of("print") >= {"positive_weights"}


def test_another_data_folder_reaches_the_descriptions_and_trains_only_what_is_missing(finished: Checkout) -> None:
    failed, other = sorted(runs_of_table(finished, "construction"))[:2]
    (finished / f"results/quick/runs/{failed}/train.json").unlink()
    (finished / "results/quick/receipts/table/ade20k").unlink()
    spec = f"results/quick/runs/{other}/spec.yaml"
    before = (finished / spec).read_text()
    (finished / "elsewhere").symlink_to("data")
    options = ("--config", "data_root=elsewhere")
    plan = finished.plan("table_construction", *options)
    assert plan.of("train") == {failed}
    assert (finished / spec).read_text() == before
    finished.snakemake("--cores", "1", "table_ade20k", *options)
    assert (finished / spec).read_text() == before.replace("data_root: data", "data_root: elsewhere")
    assert finished.plan("table_ade20k", *options).empty


def test_finished_runs_need_neither_description_nor_data(finished: Checkout) -> None:
    """What makes them again for one run must not draw in the others."""
    for path in (finished / "results/quick/runs").glob("*/spec.yaml"):
        path.unlink()
    for path in (finished / "data").glob("*/meta.json"):
        path.unlink()
    assert finished.plan().empty
    trained, evaluated = sorted(run for run in finished.runs() if run.startswith("ade20k"))[:2]
    (finished / f"results/quick/runs/{trained}/train.json").unlink()
    (finished / f"results/quick/runs/{evaluated}/multi_scale_flip.json").unlink()
    plan = finished.plan()
    assert plan.of("train") == {trained}
    assert plan.of("evaluate") == {evaluated}
    assert plan.jobs["draw_ade20k"] == 1


def test_one_missing_result_trains_that_run_whatever_table_was_printed_without_it(finished: Checkout) -> None:
    run = sorted(runs_of_table(finished, "construction"))[0]
    (finished / f"results/quick/runs/{run}/train.json").unlink()
    assert finished.plan().of("train") == {run}
    finished.python("-m", "analysis.tables", "--table", "construction")
    assert finished.plan().of("train") == {run}


def test_other_training_code_retrains_only_when_asked(finished: Checkout) -> None:
    with (finished / "pne/heads/branch.py").open("a") as file:
        file.write("\nANOTHER_CONSTANT = 3\n")
    assert finished.plan().empty
    plan = finished.plan("tables", "--config", "retrain=stale")
    assert plan.of("retrain") == finished.runs()
    assert not plan.of("train")
    assert plan.of("evaluate")


def test_a_named_run_alone_is_trained_anew(finished: Checkout) -> None:
    run = next(run for run in sorted(finished.runs()) if "asymmetric-mixed" in run and "r50" in run)
    plan = finished.plan("tables", "--config", f"retrain={run}")
    assert plan.of("retrain") == {run}
    assert not plan.of("train")
    assert plan.of("print") == {name for name in tables_of(finished) if run in runs_of_table(finished, name)}
    assert finished.plan("table_ade20k", "--config", f"retrain={run}").empty
