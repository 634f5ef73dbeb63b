"""SIGTERM and SIGINT as requests: the training stops at its next iteration boundary, with a checkpoint written."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_STATUS = {signal.SIGTERM: 75, signal.SIGINT: 130}


class Interrupted(Exception):
    """The run stopped on request; ``signum`` tells by which signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum

    @property
    def exit_status(self) -> int:
        """75 (try again later) after SIGTERM, 130 after Ctrl-C."""
        return EXIT_STATUS[signal.Signals(self.signum)]


class StopRequest:
    """The first signal that asked this process to stop, if any; 0 as long as none came."""

    def __init__(self) -> None:
        self.signum = 0

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Remember the request; a second Ctrl-C stops at once."""
        if self.signum and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.signum = self.signum or signum

    def check(self) -> None:
        """Raise ``Interrupted`` if a signal came."""
        if self.signum:
            raise Interrupted(self.signum)


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Turn SIGTERM and SIGINT into a ``StopRequest`` inside the block (main thread only)."""
    request = StopRequest()
    before = {signum: signal.signal(signum, request.note) for signum in EXIT_STATUS}
    try:
        yield request
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def leave_signals_to_parent() -> None:
    """In a data-loading worker: ignore the signals that a cluster sends to all processes of a job.

    The parent ends its workers itself once it has written its checkpoint.
    """
    for signum in EXIT_STATUS:
        signal.signal(signum, signal.SIG_IGN)
