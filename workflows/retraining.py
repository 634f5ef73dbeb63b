"""Which finished runs are to be trained anew."""

from collections.abc import Mapping, Sequence

from pne.declaration.reading import suggest
from pne.errors import UserError
from pne.results import TrainResult, read_result
from pne.spec import Run

STALE = "stale"


def retrained_runs(asked: Sequence[str], runs: Mapping[str, Run], code_sha256: str) -> frozenset[str]:
    """Choose the runs that ``--config retrain=...`` means.

    Parameters
    ----------
    asked : sequence of str
        Run ids, or ``stale`` for all runs whose results come from other training code.
    runs : mapping of str to Run
        All runs of the track.
    code_sha256 : str
        Hash of today's training code.

    Returns
    -------
    frozenset of str
        Finished runs alone: a run without results is trained anyway.

    Raises
    ------
    UserError
        If a name is no run of the track, or the results of a finished run cannot be read.
    """
    for name in asked:
        if name != STALE and name not in runs:
            raise UserError(f"--config retrain={name}: no such run; {suggest(name, [STALE, *runs])}")
    finished = {name: path for name, run in runs.items() if (path := run.directory / "train.json").exists()}
    chosen = {name for name in asked if name in finished}
    if STALE in asked:
        for name, path in finished.items():
            if not read_result(path, TrainResult).is_from(code_sha256):
                chosen.add(name)
    return frozenset(chosen)
