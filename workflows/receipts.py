"""Receipts: what Snakemake tracks in place of results, as it deletes outputs before a job and after a failure.

A receipt lists the files that a job made, and after them those that it made them from, with their SHA-256, as
``sha256sum`` does. The job's last command writes it: ``python -m workflows.receipts RECEIPT MADE ... [-- FROM ...]``.
With ``--before`` as the first word, the job's first command notes what it makes them from: that may change meanwhile.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from pne.errors import UserError, reports_user_errors
from pne.files import sha256, write_text


def vouches(receipt: Path, files: Iterable[Path | str]) -> bool:
    """Whether a receipt lists these very files as they are now, set aside or not; times of files do not count."""
    listed = _listed(files).encode()
    return any(path.is_file() and path.read_bytes() == listed for path in (receipt, _aside(receipt)))


def set_aside(receipt: Path) -> None:
    """Take a receipt out of Snakemake's sight, so that it runs the job; if it does not, nothing is forgotten."""
    try:
        if receipt.exists():
            receipt.replace(_aside(receipt))
    except OSError as error:
        raise UserError(f"{receipt}: cannot be renamed ({error.strerror}); mend permissions of its folder") from error


def _aside(receipt: Path) -> Path:
    return receipt.with_name(f".{receipt.name}")


def _listed(files: Iterable[Path | str]) -> str:
    paths = [Path(file) for file in files if file != "--"]
    return "".join(f"{sha256(path) if path.is_file() else 'missing'}  {path}\n" for path in dict.fromkeys(paths))


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Write a receipt; a file that the job should have made and has not is an error."""
    words = sys.argv[1:] if argv is None else argv
    begins = words[0] == "--before"
    receipt, *files = words[begins:]
    before, made = _aside(Path(f"{receipt}.from")), [*takewhile("--".__ne__, files)]
    if begins:
        return write_text(before, _listed(files[len(made) :]))
    for file in made:
        if not Path(file).is_file():
            raise UserError(f"{file}: the job has ended, but this file is not there; see what it printed")
    made_from = before.read_text(encoding="utf-8") if before.exists() else _listed(files[len(made) :])
    write_text(receipt, _listed(made) + made_from)
    before.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
