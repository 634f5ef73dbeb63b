"""What the rules share: the run behind a job's files, what it asks of a machine, its result files."""

from workflows.resources import ResourceTable

try:
    RESOURCES = ResourceTable.read(Path(workflow.basedir, "workflows", "resources.yaml"))
except UserError as error:
    raise WorkflowError(str(error))

# Scripts that print results: what they make is made anew when they change.
ANALYSIS = sorted(str(path.relative_to(workflow.basedir)) for path in Path(workflow.basedir, "analysis").glob("*.py"))


def run_of(wildcards):
    """Return the run that a job's files belong to."""
    if wildcards.run not in RUNS:
        raise WorkflowError(
            f"{wildcards.run} is no run of track {TRACK.name} as it is declared now; "
            f"the runs there are: python -m analysis.runs {IDENTITY}"
        )
    return RUNS[wildcards.run]


def gpus(wildcards):
    return RESOURCES.gpus(run_of(wildcards))


def cores(wildcards):
    return RESOURCES.cores(run_of(wildcards))


def memory(wildcards, attempt):
    return RESOURCES.memory_mb(run_of(wildcards), attempt)


def minutes(wildcards, attempt):
    return RESOURCES.minutes(run_of(wildcards), attempt)


def runs_of(table):
    """Ids of the runs that a table's rows point at."""
    return sorted({run for row in table.rows.values() for run in row.runs.values()})


def results_of(runs):
    """Result files of runs, with every evaluation that some table asks of them."""
    return [
        f"results/{TRACK.name}/runs/{run}/{name}.json" for run in runs for name in ("train", *RUNS[run].evaluations)
    ]
