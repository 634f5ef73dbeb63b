# Rehearsals: a few iterations of every run on the machines that will train it, before anything is launched.
#
# `python -m pne.rehearse` does the same on one machine without a workflow.

from functools import cache

from pne.rehearse.record import SUFFIX, group_runs
from workflows.configuration import spec_options


@cache
def rehearsed_as():
    # Return the run that is rehearsed for each run of the track.
    if OPTIONS.iterations:
        raise WorkflowError("rehearse: leave out --config iterations=...; runs are rehearsed as they are declared")
    return {run.run: group[0].run for group in group_runs(TRACK) for run in group}


def rehearsals(wildcards):
    # What the runs that stand for all of the tables leave.
    names = sorted({rehearsed_as()[run] for run in PRINTED})
    return [f"results/{TRACK.name}/rehearsals/runs/{run}{SUFFIX}/train.json" for run in names]


def data_to_rehearse(wildcards):
    standing = rehearsed_as()[run_of(wildcards).run]
    if wildcards.run != standing:
        raise WorkflowError(f"{wildcards.run} is rehearsed as {standing}, which costs the same: ask for that")
    return data_of(run_of(wildcards))


rule rehearse_run:
    """Rehearse one run for all that cost the same; neither its results nor its checkpoints are touched."""
    input:
        data=ancient(data_to_rehearse),
    output:
        ensure(f"results/{{track}}/rehearsals/runs/{{run}}{SUFFIX}/train.json", non_empty=True),
    log:
        "results/{track}/rehearsals/{run}.log",
    threads: cores
    resources:
        **{**NEEDS_OF_RUN, "runtime": lambda wildcards, attempt: 60 * attempt},
    message:
        "rehearse {wildcards.run}"
    shell:
        f"python -m pne.rehearse {spec_options(OPTIONS)} --run {{wildcards.run}} > {{log:q}} 2>&1"


TARGETS["rehearse"] = rehearsals
