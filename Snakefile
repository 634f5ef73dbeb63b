# Train the runs of a track and build its tables, figures and claims.
#
# snakemake                                        tables of the quick track
# snakemake table_cityscapes --config track=paper data_root=/data
# snakemake -n tables --config track=paper         what would run
#
# Targets come before --config, which takes every word after it. Keys of --config: workflows/configuration.py.

import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.11")
sys.path.insert(0, workflow.basedir)
# Every job, on this machine or on a cluster, calls the interpreter that runs the workflow.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

# A cluster that ends a job sends SIGTERM to all its processes: the shell has to stay until training, which it waits for,
# has written its checkpoint.
# `logged FILE COMMAND` appends what a command prints to a file, which Snakemake would empty, and shows its end on failure.
LOGGED = 'logged() {{ mkdir -p "${{1%/*}}"; "${{@:2}}" >> "$1" 2>&1 || {{ local status=$?; tail -n 30 "$1" >&2; return $status; }}; }}; '
shell.prefix(f"set -euo pipefail; trap : TERM; {LOGGED}")

from analysis.latex_text import check_texts
from pne.errors import UserError
from pne.spec import load_track
from workflows.configuration import check_folders, identity_options, read_configuration

try:
    OPTIONS = read_configuration(config)
    TRACK = load_track(OPTIONS.track, studies=True, **OPTIONS.track_arguments)
    check_folders(TRACK)
    check_texts(TRACK)
except UserError as error:
    raise WorkflowError(str(error))

RUNS = TRACK.runs
# Options that make the commands of analysis resolve the same runs as this file does.
IDENTITY = identity_options(OPTIONS)


wildcard_constraints:
    track=TRACK.name,
    run=r"[^/]+",
    name=r"[a-z0-9_]+",
    figure=r"[a-z0-9_]+",
    evaluation="single_scale|multi_scale_flip",


for rules_file in sorted(Path(workflow.basedir, "workflows", "rules").glob("*.smk")):

    include: rules_file


for kind, (verb, message, inputs, files, command) in RUN_RULES.items():

    rule:
        name:
            verb
        input:
            inputs,
        output:
            f"results/{{track}}/receipts/{kind}",
        priority: int(verb == "extract_features")  # what waits for them takes longest
        threads: cores
        resources:
            **NEEDS_OF_RUN,
            # What failed beside others is tried again only if that may help.
            attempt=attempts_after(int(verb == "train" and TOGETHER)),
        params:
            files=files,
            command=formatted(command),
            specs=specs_of,
        message:
            message
        shell:
            f"PNE_ATTEMPT={{resources.attempt}} logged {{params.command}} {{params.specs:q}}; {RECEIPT}"


for kind, (verb, message, log_file, command) in COMMANDS.items():

    rule:
        name:
            verb
        input:
            needs_of(kind),
        output:
            f"results/{{track}}/receipts/{kind}/{{name}}",
        log:
            log_file,
        localrule: kind != "map"  # which takes minutes
        params:
            files=files_of(kind),
            command=formatted(command),
        message:
            message
        shell:
            f"{BEFORE}; {{params.command}} > {{log:q}} 2>&1; {RECEIPT}"


for name, receipts in TARGETS.items():

    rule:
        name:
            name
        default_target: name == "tables"
        input:
            "Snakefile",  # a target that waits for nothing is always work to do
            receipts,
        localrule: True
        message:
            f"{name} of track {TRACK.name}"


onstart:
    write_descriptions()


onsuccess:
    end_timers()
    print_results()


onerror:
    end_timers()
    # What could be measured is printed, with a dash for each failed run; the workflow still ends with an error.
    render_partial_tables()
    print_results()
    print(f"What failed, and why (python -m analysis.status {IDENTITY}):", file=sys.stderr, flush=True)
    shell(f"python -m analysis.status {IDENTITY} >&2 || true")
