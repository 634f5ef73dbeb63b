# What is done with a single run: described, trained, evaluated, trained anew, packed for the test server.
#
# The rules name files and resources alone; what a run is stands in its spec.yaml. Nothing that a run does not depend on
# may reach them (no params, no scripts, a fixed command), so that only a missing result ever trains.

from pne.spec import read_spec, write_spec
from workflows.configuration import spec_options


def refresh_descriptions():
    # Write those descriptions anew that exist and differ from what this call says of the run, or cannot be read.
    for name, run in RUNS.items():
        path = run.directory / "spec.yaml"
        try:
            if not path.exists() or read_spec(path) == run:
                continue
        except UserError:
            pass
        write_spec(run, TRACK.config(name))


def is_trained(wildcards):
    # Whether both results of training are there; such a run needs neither description nor data.
    return all((run_of(wildcards).directory / name).exists() for name in ("train.json", "single_scale.json"))


def spec_to_train(wildcards):
    spec = run_of(wildcards).directory / "spec.yaml"
    return [] if is_trained(wildcards) and not spec.exists() else str(spec)


def data_to_train(wildcards):
    return [] if is_trained(wildcards) else data_of(run_of(wildcards))


def data_to_evaluate(wildcards):
    run = run_of(wildcards)
    return [] if (run.directory / "multi_scale_flip.json").exists() else data_of(run)


def data_to_retrain(wildcards):
    return [] if Path(RETRAINED_FLAG.format(**wildcards)).exists() else data_of(run_of(wildcards))


rule describe:
    """Write spec.yaml and config.py of one run. Writing them anew trains nothing: a run's identity is in its id."""
    output:
        # update: if writing fails, the old description comes back.
        update("results/{track}/runs/{run}/spec.yaml"),
    log:
        "results/{track}/runs/{run}/spec.log",
    localrule: True
    message:
        "describe {wildcards.run}"
    shell:
        f"python -m pne.spec write {spec_options(OPTIONS)} --run {{wildcards.run}} > {{log:q}} 2>&1"


rule train:
    """Train one run and score it single-scale; resumes from its work directory, publishes its results last."""
    input:
        spec=ancient(spec_to_train),
        data=ancient(data_to_train),
    output:
        ensure("results/{track}/runs/{run}/train.json", non_empty=True),
        ensure("results/{track}/runs/{run}/single_scale.json", non_empty=True),
    log:
        "results/{track}/runs/{run}/log",
    threads: cores
    resources:
        **NEEDS_OF_RUN,
    message:
        "train {wildcards.run}"
    shell:
        "PNE_ATTEMPT={resources.attempt} python -m pne.train {input.spec:q} >> {log:q} 2>&1"


rule evaluate:
    """Score the final weights of one run at several scales, mirrored too."""
    input:
        spec=ancient(SPEC),
        data=ancient(data_to_evaluate),
        trained="results/{track}/runs/{run}/train.json",
        retrained=lambda wildcards: retrained([wildcards.run]),
    output:
        ensure("results/{track}/runs/{run}/multi_scale_flip.json", non_empty=True),
    log:
        "results/{track}/runs/{run}/multi_scale_flip.log",
    threads: cores
    resources:
        **NEEDS_OF_RUN,
    message:
        "evaluate {wildcards.run} at several scales"
    shell:
        "PNE_ATTEMPT={resources.attempt} python -m pne.evaluate --evaluation multi_scale_flip {input.spec:q} >> {log:q} 2>&1"


rule retrain:
    """Train a finished run anew that ``--config retrain=...`` names."""

    # A rule's own outputs are deleted before it starts, so the results are no outputs here: the command replaces them
    # itself once the new ones are whole.
    input:
        spec=ancient(SPEC),
        data=ancient(data_to_retrain),
    output:
        touch(RETRAINED_FLAG),
    log:
        "results/{track}/runs/{run}/log",
    threads: cores
    resources:
        **NEEDS_OF_RUN,
    message:
        "train {wildcards.run} anew"
    shell:
        "PNE_ATTEMPT={resources.attempt} python -m pne.train --retrain {input.spec:q} >> {log:q} 2>&1"


rule submission:
    """Predict the test images with a run's final weights, at several scales, and pack them for the server."""

    # Only made when asked for. The score that the server gives goes into experiments/external.yaml.
    input:
        spec=ancient(SPEC),
        trained="results/{track}/runs/{run}/train.json",
    output:
        ensure("results/{track}/submissions/{run}.zip", non_empty=True),
    log:
        "results/{track}/submissions/{run}.log",
    threads: cores
    resources:
        **NEEDS_OF_RUN,
    message:
        "predict the test images with {wildcards.run}"
    shell:
        "python -m pne.submission {input.spec:q} > {log:q} 2>&1"


TARGETS |= {
    f"submission_cityscapes_{name}": f"results/{TRACK.name}/submissions/{name}.zip"
    for name, run in RUNS.items()
    if run.layout == "cityscapes"
}
