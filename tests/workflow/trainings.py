"""Watching the training processes that a test's workflow starts; reads /proc, so Linux alone."""

import threading
from pathlib import Path

MARK = "PNE_TEST_WORKFLOW"


class Watch(threading.Thread):
    """Notes which trainings run at the same time, and which GPUs each was given.

    Parameters
    ----------
    mark : str
        Value of the environment variable `MARK` of the processes to watch.
    """

    def __init__(self, mark: str) -> None:
        super().__init__(daemon=True)
        self.mark = mark
        self.seen: list[dict[str, str]] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.3):
            if trainings := running_trainings(self.mark):
                self.seen.append(trainings)

    def stop(self) -> list[dict[str, str]]:
        """End the watch and return what was seen, each time the GPUs by spec."""
        self.over.set()
        self.join()
        return self.seen


def running_trainings(mark: str) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES of every training with this mark, by its spec (a process shows twice while it forks)."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[1:3] != [b"-m", b"pne.train"]:
                continue
            pairs = (entry.partition(b"=") for entry in (process / "environ").read_bytes().split(b"\0"))
            environment = {key.decode(): value.decode() for key, _, value in pairs}
        except (FileNotFoundError, ProcessLookupError):
            continue
        if environment.get(MARK) == mark:
            found[words[3].decode()] = environment.get("CUDA_VISIBLE_DEVICES", "")
    return found
