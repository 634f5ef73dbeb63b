# What the rules share: which work is due, the run behind a job, what it asks of a machine.
#
# Results are never outputs of a rule: Snakemake tracks receipts (workflows/receipts.py), and only those of work that is due
# get into its graph. That is decided here, by content: times of files, Snakemake's records and its options have no part
# in it.

import threading
from functools import cache

from analysis.tables import EMBEDDING
from pne.extract.archives import is_extracted
from pne.results import finished_result
from pne.spec.resolve import restricted
from workflows.receipts import set_aside, vouches

RESOURCES = TRACK.declaration.resources
# Inputs of the targets for one table, one figure, one archive, by name; filled by the files of their rules.
TARGETS = {}
ARCHIVED = TRACK.archived
OFFERED = {name: table.declaration for name, table in TRACK.tables.items() if table.available}
STUDIES = [name for name, declaration in OFFERED.items() if declaration.study]
TABLES = [name for name in OFFERED if name not in STUDIES and not (ARCHIVED and name == EMBEDDING)]
# Runs of the tables that are no studies.
PRINTED = restricted(TRACK, OFFERED.keys() - set(STUDIES)).runs


def sources(*patterns):
    # Files of the checkout.
    base = Path(workflow.basedir)
    return sorted(str(path.relative_to(base)) for pattern in patterns for path in base.glob(pattern))


# Scripts that print results: what they make is made anew when they change.
ANALYSIS = sources("analysis/*.py", "analysis/tables/*.py", "analysis/claims/*.py")
# Scores entered by hand.
EXTERNAL = [path for path in ["experiments/external.yaml"] if Path(path).exists()]
# Last command of every job, and first one of those that read results for a while.
RECEIPT = "python -m workflows.receipts {output[0]:q} {params.files:q}"
BEFORE = "python -m workflows.receipts --before {output[0]:q} {params.files:q}"

RUN_FOLDER = f"results/{TRACK.name}/runs/{{wildcards.run}}"

# Finished runs to train anew; their receipts are named after the training code: once per code.
RETRAINED, CODE = frozenset(), "none"
if OPTIONS.retrain:
    from pne.engine.provenance import code_sha256
    from pne.spec.identity import digest
    from workflows.configuration import retrained_runs

    try:
        RETRAINED = retrained_runs(OPTIONS.retrain, RUNS, code_sha256)
    except UserError as error:
        raise WorkflowError(str(error))
    CODE = digest(sorted({code_sha256(run) for run in RUNS.values()}))[:12]


# By kind of work: a function of its name that returns the files that it makes, those that it makes them from, and the
# receipts of due work that it waits for.
WORK = {}
# By kind, for what is made of results by one command: name of the rule, message, log file and command.
COMMANDS = {}
# By name of the receipt, for what is done with networks: name of the rule, message, inputs, what the receipt lists, log file
# and command, after which come the specs of the runs.
RUN_RULES = {}
# Kind and name of the work that this call has to do.
WANTED = []


def work(kind):
    return lambda function: WORK.setdefault(kind, cache(function))


def files_of(kind):
    # Input function: what a receipt lists.
    def listed(wildcards):
        made, made_from, _ = WORK[kind](wildcards.get("name") or wildcards.run)
        return [*made, "--", *made_from]

    return listed


def formatted(command):
    # A shell command of a loop's rule is looked up when the job runs: it has to be a parameter.
    return lambda wildcards: command.format(wildcards=wildcards)


def needs_of(kind):
    return lambda wildcards: WORK[kind](wildcards.name)[2]


def receipt_of(kind, *name):
    return Path("results", TRACK.name, "receipts", kind, *name)


def wanted(kind, *name):
    # Return the receipt of work to do in a list.
    receipt = receipt_of(kind, *name)
    if workflow.is_main_process:  # a job on a cluster reads this file too, while others write theirs
        set_aside(receipt)
    WANTED.append((kind, *name))
    return [str(receipt)]


@cache
def due(kind, *name):
    # Return the receipt of work in a list; an empty one where the work is done and waits for nothing that is due.
    made, made_from, needs = WORK[kind](*name)
    return [] if not needs and vouches(receipt_of(kind, *name), [*made, *made_from]) else wanted(kind, *name)


def all_due(kind, names):
    return [receipt for name in names for receipt in due(kind, name)]


def run_folder(run):
    return str(RUNS[run].directory)


def trained_files(run):
    return [f"{run_folder(run)}/{name}" for name in ("train.json", "history.jsonl")]


@cache
def lacks(run, name):
    # Whether the result of training, or an evaluation of the present weights, is not there or not whole. The archive holds
    # what it holds.
    return not ARCHIVED and finished_result(RUNS[run], name) is None


def due_training(run):
    # Receipt of a run that is not trained, or is to be trained anew, in a list.
    if lacks(run, "train"):
        return wanted("train", run)
    return due(f"retrain-{CODE}", run) if run in RETRAINED else []


def due_trainings(runs):
    return [receipt for run in runs for receipt in due_training(run)]


def due_results(runs, evaluations=()):
    # Receipts of trainings and evaluations; without named evaluations, of every one that some table asks for.
    receipts = []
    for run in runs:
        training = due_training(run)
        # The first training ends with all evaluations that the run is asked for, another one with the single-scale one.
        names = () if lacks(run, "train") else evaluations or RUNS[run].evaluations
        waiting = [name for name in names if (name != "single_scale" if training else lacks(run, name))]
        receipts += [*training, *(receipt for name in waiting for receipt in wanted(name, run))]
    return receipts


def result_files(runs, evaluations=()):
    # Result files of runs, as `due_results` takes them.
    names = {run: ("train", *(evaluations or RUNS[run].evaluations)) for run in runs}
    return [f"{run_folder(run)}/{name}.json" for run in runs for name in names[run]]


def runs_behind(wildcards):
    # Return the run that a job's files belong to, or the runs that a figure shows, in a list.
    if "figure" in wildcards.keys():
        return FIGURES[wildcards.figure].first_seed_runs
    if wildcards.run not in RUNS:
        raise WorkflowError(
            f"{wildcards.run} is no run of track {TRACK.name} as it is declared now; "
            f"the runs there are: python -m analysis.runs {IDENTITY}"
        )
    return [wildcards.run]


def run_of(wildcards):
    # Return a run of a job; all that share a job need the same.
    run = RUNS[runs_behind(wildcards)[0]]
    if ARCHIVED:
        raise WorkflowError(f"{run.run}: the archive holds none of its weights; leave out source=archive")
    return run


def specs_of(wildcards):
    return [f"{run_folder(run)}/spec.yaml" for run in runs_behind(wildcards)]


def data_and_training(wildcards):
    # What work with the weights of runs waits for.
    return [dataset_file(run_of(wildcards).dataset), *due_trainings(runs_behind(wildcards))]


def gpus(wildcards):
    return run_of(wildcards).runtime.claimed_gpus


def cores(wildcards):
    return run_of(wildcards).runtime.cores


def attempts_after(others):
    # A resource, as it goes with a job to the process that runs it.
    return lambda wildcards, attempt: attempt + others


# Resources of every rule that loads a network.
NEEDS_OF_RUN = {
    "gpu": gpus,
    "mem_mb": lambda wildcards, attempt: RESOURCES.memory(gpus(wildcards), attempt),
    "runtime": lambda wildcards, attempt: RESOURCES.minutes(
        run_of(wildcards).model, run_of(wildcards).iterations, attempt
    ),
}


def runs_of(table):
    # Ids of the runs that a table's rows point at.
    return sorted({run for row in table.rows.values() for run in row.runs.values()})


def end_timers():
    # Of the scheduler, see max-jobs-per-timespan in the profiles; it would wait for them before it ends.
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()
