"""Which runs one rehearsal stands for: those that cost the same because only numbers of the contrast differ."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pne.declaration.canonical import canonical, digest
from pne.declaration.resolved import ResolvedTrack
from pne.spec import Run


@dataclass(frozen=True)
class Group:
    """Runs that are rehearsed once.

    Attributes
    ----------
    run : Run
        The one that is rehearsed: the first of the track.
    stands_for : tuple of str
        Identifiers of all of them, the rehearsed one first.
    evaluations : tuple of str
        What any of them is scored with.
    """

    run: Run
    stands_for: tuple[str, ...]
    evaluations: tuple[str, ...]


def group_runs(track: ResolvedTrack) -> list[Group]:
    """Group the runs of a track: equal but for the contrast's weight, its temperature and the seed.

    Parameters
    ----------
    track : ResolvedTrack

    Returns
    -------
    list of Group
        In the order of the track; every run is in exactly one group.
    """
    members: dict[str, list[Run]] = {}
    for name, run in track.runs.items():
        members.setdefault(f"{run.precision} {cost_key(track.config(name).to_dict())}", []).append(run)
    return [
        Group(
            run=runs[0],
            stands_for=tuple(run.run for run in runs),
            evaluations=tuple(dict.fromkeys(name for run in runs for name in run.evaluations)),
        )
        for runs in members.values()
    ]


def cost_key(config: Mapping[str, Any]) -> str:
    """Hash a config without what changes no cost."""
    plain = canonical(config)
    plain.pop("randomness", None)
    plain["train_dataloader"].get("sampler", {}).pop("seed", None)
    for contrast in contrasts(plain["model"]):
        for key in ("weight", "seed"):
            contrast.pop(key, None)
        contrast["loss"].pop("temperature", None)
    return digest(plain)


def contrasts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the settings of every contrast branch in the config of a model."""
    if isinstance(value, Mapping):
        if value.get("type") == "ContrastHead":
            yield value["contrast"]
        for item in value.values():
            yield from contrasts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from contrasts(item)
