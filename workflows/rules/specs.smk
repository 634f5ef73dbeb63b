"""Descriptions of the runs, written before any of them trains."""

import hashlib


localrules:
    specs,


def specs_digest(wildcards):
    """Digest of all descriptions as they would be written: a run added, or another data folder, writes them anew."""
    text = "\n".join(run.model_dump_json() for run in RUNS.values())
    return hashlib.sha256(text.encode()).hexdigest()


rule specs:
    """Write spec.yaml and config.py of every run of the track. Writing them anew trains nothing: identity is in the id."""
    output:
        [f"results/{TRACK.name}/runs/{run}/spec.yaml" for run in RUNS],
    log:
        f"results/{TRACK.name}/specs.log",
    params:
        digest=specs_digest,
        options=f"{IDENTITY} {ENVIRONMENT}",
    message:
        f"describe the {len(RUNS)} runs of the track"
    shell:
        "python -m pne.spec write {params.options} > {log:q} 2>&1"
