"""What command lines share: lines for people, spans of time in words, whole numbers as arguments."""

import argparse
import sys
from datetime import datetime, timezone


def say(message: str) -> None:
    """Print one line with the time of day; flushed, since logs are followed while they grow."""
    print(f"{datetime.now():%H:%M:%S} {message}", flush=True)


def warn(message: str) -> None:
    """Print one warning line on standard error."""
    print(f"{datetime.now():%H:%M:%S} warning: {message}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Time span for people: ``42 s``, ``3 min 10 s``, ``5 h 02 min``.

    >>> duration(42.4), duration(190), duration(18120)
    ('42 s', '3 min 10 s', '5 h 02 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def utc_now() -> str:
    """Return the present time, ISO 8601, UTC, whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def positive(text: str) -> int:
    """Read a number of a command line that has to be at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number >= 1, got {text}")
    return number
