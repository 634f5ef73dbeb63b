"""A first look at a file of weights, without torch."""

from pathlib import Path

ZIP = b"PK\x03\x04"
PICKLE = b"\x80"  # followed by the protocol's number: how torch.save wrote before 1.6
HIGHEST_PROTOCOL = 5


def problem_of(path: Path) -> str | None:
    """Say why a file cannot be what ``torch.save`` wrote, judged from its first bytes; None if it may be.

    A page that a server sends instead of a file, and a download that never began, are seen here; a file cut short
    only when it is loaded.
    """
    if not path.is_file():
        return "no such file"
    try:
        with path.open("rb") as file:
            start = file.read(40)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not start:
        return "the file is empty"
    if start.startswith(ZIP) or (start[:1] == PICKLE and len(start) > 1 and start[1] <= HIGHEST_PROTOCOL):
        return None
    return f"no file of PyTorch weights: it begins with {start!r}"
