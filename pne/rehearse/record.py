"""What a rehearsal stands for and what it leaves; free of torch.

It leaves what every training does (``spec.yaml``, ``config.py``, ``log``, ``train.json``, one file per evaluation), in
``results/<track>/rehearsals/runs/<run>-rehearsal/``. Rehearsals with a smaller crop or batch say nothing about the cost
of the run: theirs lie in ``results/<track>/rehearsals/reduced/runs/``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pne.results import EvaluationResult, TrainResult, read_result
from pne.spec import ResolvedTrack, Run, read_spec
from pne.spec.identity import canonical, digest
from pne.spec.stock import parts

SUFFIX = "-rehearsal"


class Rehearsal(NamedTuple):
    """What the training of a shortened run measured.

    Attributes
    ----------
    trained : TrainResult
    scored : dict of str to EvaluationResult
        By evaluation; of the largest test images alone.
    """

    trained: TrainResult
    scored: dict[str, EvaluationResult]

    @property
    def peak_memory_mib(self) -> float:
        """Most memory of training and evaluation."""
        return max([self.trained.peak_memory_mib, *(result.peak_memory_mib or 0.0 for result in self.scored.values())])

    def __str__(self) -> str:
        """Say on one line what was measured."""
        scored = [f"{result.time_s / result.images:.3g} s/image {name}" for name, result in self.scored.items()]
        return ", ".join([f"{self.trained.time_s:.3g} s/iter", *scored, f"{self.peak_memory_mib / 1024:.2f} GiB"])


def read_rehearsal(directory: Path) -> Rehearsal:
    """Read what a rehearsal left in its folder.

    Raises
    ------
    UserError
        If a file is missing or does not hold what it should.
    """
    names = read_spec(directory / "spec.yaml").evaluations
    scored = {name: read_result(directory / f"{name}.json", EvaluationResult) for name in names}
    return Rehearsal(read_result(directory / "train.json", TrainResult), scored)


def read_rehearsals(folder: Path, track: ResolvedTrack) -> dict[str, Rehearsal]:
    """Read the rehearsals in a folder, by every run of the track that they stand for.

    Raises
    ------
    UserError
        If a file does not hold what it should.
    """
    found = {}
    for group in group_runs(track) if folder.is_dir() else ():
        directories = [folder / "runs" / f"{run.run}{SUFFIX}" for run in group]
        if rehearsed := [directory for directory in directories if (directory / "train.json").exists()]:
            found |= dict.fromkeys((run.run for run in group), read_rehearsal(rehearsed[0]))
    return found


def group_runs(track: ResolvedTrack) -> list[list[Run]]:
    """Group the runs of a track that cost the same: equal but for the contrast's weight, its temperature and the seed.

    Parameters
    ----------
    track : ResolvedTrack

    Returns
    -------
    list of list of Run
        In the order of the track; every run is in exactly one group. The first of each is rehearsed for all.
    """
    groups: dict[str, list[Run]] = {}
    for name, run in track.runs.items():
        plain = canonical(track.config(name).to_dict())
        plain.pop("randomness", None)
        plain["train_dataloader"].get("sampler", {}).pop("seed", None)
        for contrast in contrasts(plain["model"]):
            for place, key in ((contrast, "weight"), (contrast, "seed"), (contrast["loss"], "temperature")):
                place.pop(key, None)
        groups.setdefault(f"{run.precision} {digest(plain)}", []).append(run)
    return list(groups.values())


def contrasts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the settings of every contrast branch in the config of a model."""
    yield from (part["contrast"] for part in parts(value) if part.get("type") == "ContrastHead")
