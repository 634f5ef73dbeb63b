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
shell.prefix("set -euo pipefail; trap : TERM; ")

from pne.errors import UserError
from pne.spec import load_track
from workflows.configuration import check_folders, identity_options, read_configuration

try:
    OPTIONS = read_configuration(config)
    TRACK = load_track(OPTIONS.track, studies=True, **OPTIONS.track_arguments)
    check_folders(TRACK)
except UserError as error:
    raise WorkflowError(str(error))

RUNS = TRACK.runs
# Options that make the commands of analysis resolve the same runs as this file does.
IDENTITY = identity_options(OPTIONS)


wildcard_constraints:
    track=TRACK.name,
    run=r"[^/]+",
    table=r"[a-z0-9_]+",


for rules_file in sorted(Path(workflow.basedir, "workflows", "rules").glob("*.smk")):

    include: rules_file


for name, files in TARGETS.items():

    rule:
        name:
            name
        default_target: name == "tables"
        input:
            files,
        localrule: True
        message:
            f"{name} of track {TRACK.name}"


onstart:
    if not ARCHIVED:
        refresh_descriptions()


onsuccess:
    print_results()


onerror:
    # What could be measured is printed, with a dash for each failed run; the workflow still ends with an error.
    render_partial_tables()
    print_results()
    print(f"What failed, and why: python -m analysis.status {IDENTITY}", file=sys.stderr)
