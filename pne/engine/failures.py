"""Failures of a run that need no traceback: the message says it all."""


class RunFailure(RuntimeError):
    """The run failed; going on or trying again as it is would fail again."""


class DivergenceError(RunFailure):
    """A loss or a weight is NaN or infinite."""


class OutOfMemoryFailure(RunFailure):
    """The device's memory does not suffice for the batch."""
