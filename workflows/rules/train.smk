"""Training and evaluation of single runs.

The rules name files and resources alone; what a run is stands in its spec.yaml. Nothing that a run does not depend on
may reach these rules (no params, no scripts, a fixed command), so that only a missing result ever trains.
"""


def spec_of(wildcards):
    """Description of the run; none for a run that is finished and lost it, so that writing it does not train."""
    spec = run_of(wildcards).directory / "spec.yaml"
    return [] if is_trained(wildcards) and not spec.exists() else str(spec)


def data_to_train(wildcards):
    return [] if is_trained(wildcards) else data_of(run_of(wildcards))


def data_to_evaluate(wildcards):
    run = run_of(wildcards)
    return [] if (run.directory / "multi_scale_flip.json").exists() else data_of(run)


def is_trained(wildcards):
    """Whether both results of training are there; such a run needs no data."""
    return all((run_of(wildcards).directory / name).exists() for name in ("train.json", "single_scale.json"))


rule train:
    """Train one run and score it single-scale; resumes from its work directory, publishes its results last."""
    input:
        spec=ancient(spec_of),
        data=ancient(data_to_train),
    output:
        ensure("results/{track}/runs/{run}/train.json", non_empty=True),
        ensure("results/{track}/runs/{run}/single_scale.json", non_empty=True),
    log:
        "results/{track}/runs/{run}/log",
    threads: cores
    resources:
        gpu=gpus,
        mem_mb=memory,
        runtime=minutes,
    message:
        "train {wildcards.run}"
    shell:
        "python -m pne.train {input.spec:q} >> {log:q} 2>&1"


rule evaluate:
    """Score the final weights of one run at several scales, mirrored too."""
    input:
        spec=ancient("results/{track}/runs/{run}/spec.yaml"),
        data=ancient(data_to_evaluate),
        trained="results/{track}/runs/{run}/train.json",
        retrained=lambda wildcards: retrained([wildcards.run]),
    output:
        ensure("results/{track}/runs/{run}/multi_scale_flip.json", non_empty=True),
    log:
        "results/{track}/runs/{run}/multi_scale_flip.log",
    threads: cores
    resources:
        gpu=gpus,
        mem_mb=memory,
        runtime=minutes,
    message:
        "evaluate {wildcards.run} at several scales"
    shell:
        "python -m pne.evaluate --evaluation multi_scale_flip {input.spec:q} >> {log:q} 2>&1"
