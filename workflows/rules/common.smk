# What the rules share: the run behind a job's files, what it asks of a machine, its result files.

from analysis.tables import EMBEDDING
from pne.spec.resolve import restricted

RESOURCES = TRACK.declaration.resources
# Inputs of the targets for one table, one figure, one archive, by name; filled by the files of their rules.
TARGETS = {}
ARCHIVED = OPTIONS.source == "archive"
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


# Finished runs to train anew, and the flags that say that it was done, named after the training code: once per code.
RETRAINED = frozenset()
RETRAINED_FLAG = "results/{track}/retrained/none/{run}"
if OPTIONS.retrain:
    from pne.engine.provenance import code_sha256
    from pne.spec.identity import digest
    from workflows.configuration import retrained_runs

    try:
        RETRAINED = retrained_runs(OPTIONS.retrain, RUNS, code_sha256)
    except UserError as error:
        raise WorkflowError(str(error))
    CODE = digest(sorted({code_sha256(run) for run in RUNS.values()}))
    RETRAINED_FLAG = f"results/{{track}}/retrained/{CODE[:12]}/{{run}}"


def retrained(runs):
    # Flags of those of the given runs that this call is to train anew.
    return [RETRAINED_FLAG.format(track=TRACK.name, run=run) for run in runs if run in RETRAINED]


def run_of(wildcards):
    # Return the run that a job's files belong to.
    if wildcards.run not in RUNS:
        raise WorkflowError(
            f"{wildcards.run} is no run of track {TRACK.name} as it is declared now; "
            f"the runs there are: python -m analysis.runs {IDENTITY}"
        )
    if ARCHIVED:
        raise WorkflowError(f"{wildcards.run}: the archive holds none of its weights; leave out source=archive")
    return RUNS[wildcards.run]


def gpus(wildcards):
    return run_of(wildcards).runtime.claimed_gpus


def cores(wildcards):
    return run_of(wildcards).runtime.cores


# Resources of every rule that loads a network.
NEEDS_OF_RUN = {
    "gpu": gpus,
    "attempt": lambda wildcards, attempt: attempt,
    "mem_mb": lambda wildcards, attempt: RESOURCES.memory(gpus(wildcards), attempt),
    "runtime": lambda wildcards, attempt: RESOURCES.minutes(
        run_of(wildcards).model, run_of(wildcards).iterations, attempt
    ),
}
SPEC = "results/{track}/runs/{run}/spec.yaml"


def runs_of(table):
    # Ids of the runs that a table's rows point at.
    return sorted({run for row in table.rows.values() for run in row.runs.values()})


def results_of(runs, evaluations=None):
    # Result files of runs; without named evaluations, all that tables ask of them. Of the archive, what is there.
    files = [
        str(RUNS[run].directory / f"{name}.json")
        for run in runs
        for name in ("train", *(RUNS[run].evaluations if evaluations is None else sorted(evaluations)))
    ]
    return [file for file in files if not ARCHIVED or Path(file).exists()]


def complete(runs, evaluations=None):
    # Inputs of a target that shall stand on complete results.
    #
    # A target names them beside the files made from them: where a table exists already, printed while a run was
    # missing, Snakemake does not look behind it.
    return [*results_of(runs, evaluations), *retrained(runs)]
