"""Training finished runs anew: only those that ``--config retrain=stale`` or ``retrain=<run id>,...`` names.

A rule's own outputs are deleted before it starts, so the results are no outputs here: the command replaces them itself
once the new ones are whole. The flag is named after the training code, so that a run is trained once per code.
"""

RETRAINED = frozenset()

if OPTIONS.retrain:
    from pne.engine.provenance import code_sha256
    from workflows.retraining import retrained_runs

    try:
        RETRAINED = retrained_runs(OPTIONS.retrain, RUNS, code_sha256())
    except UserError as error:
        raise WorkflowError(str(error))

    FLAGS = f"results/{{track}}/retrained/{code_sha256()[:12]}/{{run}}"

    rule retrain:
        """Train one finished run anew, in a fresh work folder; its results are replaced when the new ones are whole."""
        input:
            spec=ancient("results/{track}/runs/{run}/spec.yaml"),
            data=ancient(lambda wildcards: data_of(run_of(wildcards))),
        output:
            touch(FLAGS),
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


def retrained(runs):
    """Flags of those of the given runs that were asked to be trained anew."""
    return [FLAGS.format(track=TRACK.name, run=run) for run in runs if run in RETRAINED]
