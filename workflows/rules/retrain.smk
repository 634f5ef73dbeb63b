"""Training finished runs anew: only those that ``--config retrain=stale`` or ``retrain=<run id>,...`` names.

A rule's own outputs are deleted before it starts, so the results are no outputs here: the command replaces them itself
once the new ones are whole.
"""


def data_to_retrain(wildcards):
    return [] if Path(RETRAINED_FLAG.format(**wildcards)).exists() else data_of(run_of(wildcards))


rule retrain:
    """Train one finished run anew, in a fresh work folder; its results are replaced when the new ones are whole."""
    input:
        spec=ancient("results/{track}/runs/{run}/spec.yaml"),
        data=ancient(data_to_retrain),
    output:
        touch(RETRAINED_FLAG),
    log:
        "results/{track}/runs/{run}/log",
    threads: cores
    resources:
        gpu=gpus,
        mem_mb=memory,
        runtime=minutes,
    message:
        "train {wildcards.run} anew"
    shell:
        "python -m pne.train --retrain {input.spec:q} >> {log:q} 2>&1"
