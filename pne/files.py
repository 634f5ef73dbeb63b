"""Writing files so that a reader, or a crash, never sees half of one; the digest of what was written."""

import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pne.errors import UserError

_ASIDE = re.compile(r"\..+\.[0-9a-f]{8}(\.\w+)?")


@contextmanager
def written_aside(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; rename it to ``path`` once the block has ended well.

    Parameters
    ----------
    path : Path or str
        The final file. Its folder is created. An existing file stays whole until the new one is complete.

    Yields
    ------
    Path
        A path to write to; ends with the suffix of ``path`` so that writers which look at it work.

    Raises
    ------
    UserError
        If the file cannot be written (disk full, no permission), naming the file and the reason.
    """
    path = Path(path)
    aside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.stem}.{uuid.uuid4().hex[:8]}{path.suffix}")
        aside.touch(exist_ok=False)
        yield aside
        with aside.open("rb") as stream:
            os.fsync(stream.fileno())
        aside.replace(path)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); free space or mend permissions in {path.parent}"
        ) from error
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


def discard_asides(folder: Path) -> None:
    """Delete what killed processes were writing aside below a folder that nobody else writes to."""
    for path in folder.rglob(".*"):
        if _ASIDE.fullmatch(path.name):
            path.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """Write ``text`` (UTF-8) to ``path`` atomically; see `written_aside`."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def sha256(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
