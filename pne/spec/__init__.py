"""From declarations to runs: what a run is, the runs of a track, and the files ``spec.yaml`` and ``config.py``.

Free of torch: a workflow parses this on every job.
"""

from pne.spec.resolve import ResolvedRow, ResolvedTable, ResolvedTrack, load_track
from pne.spec.run import Run, Runtime, identify, read_config, read_spec, write_spec

__all__ = [
    "ResolvedRow",
    "ResolvedTable",
    "ResolvedTrack",
    "Run",
    "Runtime",
    "identify",
    "load_track",
    "read_config",
    "read_spec",
    "write_spec",
]
