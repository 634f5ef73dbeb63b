"""Rehearsals: a few iterations of every run on the machines that will train it, before anything is launched.

`python -m pne.rehearse` does the same on one machine without a workflow.
"""

import shlex

from pne.rehearse.record import group_runs


localrules:
    rehearse,


def rehearsals(wildcards):
    """Records of the runs that stand for all others."""
    if OPTIONS.iterations:
        raise WorkflowError("rehearse: leave out --config iterations=...; runs are rehearsed as they are declared")
    return [f"results/{TRACK.name}/rehearsals/{group.run.run}.json" for group in group_runs(TRACK)]


def data_to_rehearse(wildcards):
    standing = next(group for group in group_runs(TRACK) if run_of(wildcards).run in group.stands_for).run.run
    if wildcards.run != standing:
        raise WorkflowError(f"{wildcards.run} is rehearsed as {standing}, which costs the same: ask for that")
    return data_of(run_of(wildcards))


def rehearse_options(options):
    """Options of ``python -m pne.rehearse`` that describe the same runs."""
    values = {"track": options.track, "data-root": options.data_root, "weights-dir": options.weights_dir}
    values |= {key: value for key, value in options.runtime.items() if key != "checkpoint_interval"}
    words = [word for key, value in values.items() if value is not None for word in (f"--{key}", str(value))]
    words += ["--seeds", *map(str, options.seeds)] if options.seeds else []
    return shlex.join(word.replace("_", "-") if word.startswith("--") else word for word in words)


rule rehearse:
    """Rehearse every run of the track; `python -m analysis.plan` then knows what it costs."""
    input:
        rehearsals,
    message:
        f"rehearsals of track {TRACK.name}"


rule rehearse_run:
    """Rehearse one run for all that cost the same; neither its results nor its checkpoints are touched."""
    input:
        data=ancient(data_to_rehearse),
    output:
        ensure("results/{track}/rehearsals/{run}.json", non_empty=True),
    log:
        "results/{track}/rehearsals/{run}.log",
    threads: cores
    resources:
        gpu=gpus,
        mem_mb=memory,
        runtime=lambda wildcards, attempt: 60 * attempt,
    message:
        "rehearse {wildcards.run}"
    shell:
        f"python -m pne.rehearse {rehearse_options(OPTIONS)} --run {{wildcards.run}} > {{log:q}} 2>&1"
