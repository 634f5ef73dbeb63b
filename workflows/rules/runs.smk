# What is done with a single run: trained, evaluated, trained anew, packed for the test server, rehearsed.

from pne.files import write_text
from pne.rehearse.record import SUFFIX, group_runs
from pne.spec import write_spec
from workflows.configuration import spec_options


def write_descriptions():
    # Write the descriptions that jobs read, and anew those that differ from what this call says, or are damaged.
    if ARCHIVED:
        return
    described = {name[-1] for kind, *name in WANTED if kind != "rehearse"}
    for name, run in RUNS.items():
        if name in described or run.directory.exists():
            write_spec(run, TRACK.config(name))
    for first in {*COMPANIES.values()}:
        due = [RUNS[name[0]] for kind, *name in WANTED if kind == "train"]
        specs = dict.fromkeys(str(run.directory / "spec.yaml") for run in due if COMPANIES.get(run.dataset) == first)
        write_text(f"{receipt_of('side_by_side', first)}.specs", "\n".join(specs))


# On the CPU of this machine runs are trained side by side in one job: importing torch takes longer than many of them.
# What became of each run is up to its own job, which finds it finished, or says why it is not. A data set that has to be
# there already may lack, and holds up none but its own runs.

HERE = workflow.is_main_process and workflow.resource_settings.nodes is None
TOGETHER = HERE and {run.runtime.device for run in RUNS.values()} == {"cpu"}
# By data set: the one that the job is named after in which its runs are trained.
COMPANIES = {}


def company_of(dataset):
    if dataset not in COMPANIES:
        known = {RUNS[name[0]].dataset for kind, *name in WANTED if kind == "train"} - COMPANIES.keys() | {dataset}
        COMPANIES.update({name: dataset for name in known if name == dataset or is_drawn(name) and is_drawn(dataset)})
    return COMPANIES[dataset]


def before_training(wildcards):
    run = run_of(wildcards)
    WANTED.append(("train", run.run))  # also where its receipt is asked for directly
    return wanted("side_by_side", company_of(run.dataset)) if TOGETHER else dataset_file(run.dataset)


rule side_by_side:
    """Train the due runs of some data sets; what a run failed by does not hold up the others."""
    input:
        lambda wildcards: [dataset_file(name) for name, first in COMPANIES.items() if first == wildcards.dataset],
    output:
        "results/{track}/receipts/side_by_side/{dataset}",
    threads: workflow.resource_settings.cores or 1
    message:
        "train runs side by side"
    shell:
        "python -m pne.train --keep-going --cores {threads} $(cat {output}.specs) || test $? -le 2; touch {output:q}"


# Train one run and evaluate it; resumes from its work directory.
RUN_RULES["train/{run}"] = (
    "train",
    "train {wildcards.run}",
    before_training,
    lambda wildcards: [*trained_files(wildcards.run), *result_files([wildcards.run])],
    f"{RUN_FOLDER}/log python -m pne.train",
)
# Score the final weights; never trains.
RUN_RULES["{evaluation}/{run}"] = (
    "evaluate",
    "evaluate {wildcards.run}: {wildcards.evaluation}",
    data_and_training,
    lambda wildcards: [f"{run_folder(wildcards.run)}/{wildcards.evaluation}.json"],
    f"{RUN_FOLDER}/{{wildcards.evaluation}}.log python -m pne.evaluate --evaluation {{wildcards.evaluation}}",
)
# Train a finished run anew that ``--config retrain=...`` names; its results stay until the new ones are whole.
RUN_RULES[f"retrain-{CODE}/{{run}}"] = (
    "retrain",
    "train {wildcards.run} anew",
    lambda wildcards: dataset_file(run_of(wildcards).dataset),
    lambda wildcards: trained_files(wildcards.run),
    f"{RUN_FOLDER}/log python -m pne.train --retrain",
)
# Predict the test images at several scales, and pack them for the server. Only made when asked for. The score that the
# server gives goes into experiments/external.yaml.
RUN_RULES["submission/{run}"] = (
    "submission",
    "predict the test images with {wildcards.run}",
    data_and_training,
    files_of("submission"),
    f"results/{TRACK.name}/submissions/{{wildcards.run}}.log python -m pne.submission",
)
WORK[f"retrain-{CODE}"] = lambda run: (trained_files(run), [], [])


@work("submission")
def submission(run):
    archive = [f"results/{TRACK.name}/submissions/{run}.{suffix}" for suffix in ("zip", "json")]
    return archive, [f"{run_folder(run)}/train.json"], due_training(run)


# Rehearsals: a few iterations of every run on the machines that will train it, before anything is launched;
# `python -m pne.rehearse` does the same on one machine without a workflow.


@cache
def rehearsed_as():
    # Return the run that is rehearsed for each run of the track.
    if OPTIONS.iterations:
        raise WorkflowError("rehearse: leave out --config iterations=...; runs are rehearsed as they are declared")
    return {run.run: group[0].run for group in group_runs(TRACK) for run in group}


def rehearsal_of(run):
    return f"results/{TRACK.name}/rehearsals/runs/{run}{SUFFIX}/train.json"


def rehearsals(wildcards):
    # Receipts of the runs that stand for all of the tables and are not rehearsed yet.
    names = sorted({rehearsed_as()[run] for run in PRINTED})
    return [receipt for run in names if not Path(rehearsal_of(run)).exists() for receipt in wanted("rehearse", run)]


def data_to_rehearse(wildcards):
    standing = rehearsed_as()[run_of(wildcards).run]
    if wildcards.run != standing:
        raise WorkflowError(f"{wildcards.run} is rehearsed as {standing}, which costs the same: ask for that")
    return dataset_file(run_of(wildcards).dataset)


rule rehearse_run:
    """Rehearse one run for all that cost the same; neither its results nor its checkpoints are touched."""
    input:
        data_to_rehearse,
    output:
        "results/{track}/receipts/rehearse/{run}",
    log:
        "results/{track}/rehearsals/{run}.log",
    threads: cores
    resources:
        **{**NEEDS_OF_RUN, "runtime": lambda wildcards, attempt: 60 * attempt},
    params:
        files=lambda wildcards: [rehearsal_of(wildcards.run)],
    message:
        "rehearse {wildcards.run}"
    shell:
        f"python -m pne.rehearse {spec_options(OPTIONS)} --run {{wildcards.run}} > {{log:q}} 2>&1; {RECEIPT}"


TARGETS |= {f"run_{name}": lambda wildcards, name=name: due_results([name]) for name in RUNS}
TARGETS |= {
    f"submission_cityscapes_{name}": lambda wildcards, name=name: due("submission", name)
    for name, run in RUNS.items()
    if run.layout == "cityscapes"
}
TARGETS["rehearse"] = rehearsals
