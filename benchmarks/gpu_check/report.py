"""The lines that a part writes: what was measured, what it had to be, what was skipped and why."""

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pne.engine.provenance import device_name, git_state


@dataclass
class Report:
    """What a part knows, and where it writes."""

    part: str
    device: torch.device
    tiny: bool  # show that the part runs, on little data: times then say nothing
    folder: Path  # for files of the part's own; empty at first
    out: Path  # each line is appended to this file as soon as it is known
    deadline: float  # when the part is stopped, on the clock of time.monotonic
    failed: bool = False  # whether a measurement could not be made

    def tell(self, what: str, **values: Any) -> None:
        """Write a line: what it is about, its values, and which device, torch and commit gave them."""
        commit, dirty = git_state()
        line = {"part": self.part, "what": what, **values, "tiny": self.tiny}
        line |= {"device": device_name(self.device), "torch": torch.__version__, "commit": commit, "dirty": dirty}
        with self.out.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    def check(
        self,
        what: str,
        value: Any,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        equal: Any = None,
        timing: bool = False,
        **about: Any,
    ) -> None:
        """Compare a value with its target; times are judged on a GPU at full size alone."""
        if at_most is not None:
            target, met = f"<= {at_most:g}", value <= at_most
        elif at_least is not None:
            target, met = f">= {at_least:g}", value >= at_least
        else:
            target, met = f"{equal}", value == equal
        ok, why = met, {}
        if timing and (self.tiny or self.device.type == "cpu"):
            ok, why = None, {"why": "times count on a GPU at full size"}
        self.tell(what, **about, value=value, target=target, ok=ok, **why)

    def skip(self, what: str, why: str) -> None:
        """Say what is not measured, and why."""
        self.tell(what, skipped=why)

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Note an error inside the block as a line and go on; after an error of CUDA itself nothing can."""
        try:
            yield
        except Exception as error:
            self.failed = True
            traceback.print_exc()
            self.tell(what, ok=False, error=f"{type(error).__name__}: {error}".splitlines()[0][:300])
            if "CUDA error" in str(error):
                raise
