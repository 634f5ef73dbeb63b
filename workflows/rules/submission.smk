"""Archives for the Cityscapes test server, one target per run: submission_cityscapes_<run>.

Only made when asked for. The score that the server gives goes into experiments/external.yaml.
"""


rule submission:
    """Predict the test images with a run's final weights, at several scales, and pack them for the server."""
    input:
        spec=ancient("results/{track}/runs/{run}/spec.yaml"),
        trained="results/{track}/runs/{run}/train.json",
    output:
        ensure("results/{track}/submissions/{run}.zip", non_empty=True),
    log:
        "results/{track}/submissions/{run}.log",
    threads: cores
    resources:
        gpu=gpus,
        mem_mb=memory,
        runtime=minutes,
    message:
        "predict the test images with {wildcards.run}"
    shell:
        "python -m pne.submission {input.spec:q} > {log:q} 2>&1"


for name, run in RUNS.items():
    if run.layout == "cityscapes":

        rule:
            name:
                f"submission_cityscapes_{name}"
            input:
                f"results/{TRACK.name}/submissions/{name}.zip",
            localrule: True
            message:
                f"archive of {name} for the Cityscapes server"
