"""Descriptions of the runs, each written before the run trains.

One job a run, without parameters: a description that exists is never a job's reason to run. Where it names another data
folder or device than this call does, it is brought up to date when the jobs start (see `onstart`).
"""

from pne.spec import read_spec, write_spec


localrules:
    describe,


rule describe:
    """Write spec.yaml and config.py of one run. Writing them anew trains nothing: a run's identity is in its id."""
    output:
        # update: if writing fails, the old description comes back.
        update("results/{track}/runs/{run}/spec.yaml"),
    log:
        "results/{track}/runs/{run}/spec.log",
    message:
        "describe {wildcards.run}"
    shell:
        f"python -m pne.spec write {spec_options(OPTIONS)} --run {{wildcards.run}} > {{log:q}} 2>&1"


def refresh_descriptions():
    """Write those descriptions anew that exist and differ from what this call says of the run."""
    for name, run in RUNS.items():
        path = run.directory / "spec.yaml"
        if path.exists() and not is_described(path, run):
            write_spec(run, TRACK.config(name))


def is_described(path, run):
    """Whether a description says of the run what this call says; one that cannot be read does not."""
    try:
        return read_spec(path) == run
    except UserError:
        return False
