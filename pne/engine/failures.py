"""Failures of a run that need no traceback: the message says it all."""


class RunFailure(RuntimeError):
    """The run failed; going on or trying again as it is would fail again."""


class DivergenceError(RunFailure):
    """A loss or a weight is NaN or infinite.

    Attributes
    ----------
    iteration : int
        Number of the iteration, counted from 1.
    what : str
        What is not finite, and what to do.
    """

    def __init__(self, iteration: int, what: str) -> None:
        super().__init__(f"iteration {iteration}: {what}")
        self.iteration, self.what = iteration, what


class OutOfMemoryFailure(RunFailure):
    """The device's memory does not suffice for the batch."""
