"""What an examination of a data set found."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pne.errors import UserError
from pne.files import write_text

SHOWN_FILES = 3


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or looks wrong.

    Attributes
    ----------
    problem : str
        What was expected and what came.
    files : list of str
        All files concerned, sorted, relative to the data root.
    remedy : str
        What to do.
    """

    problem: str
    files: list[str] = field(default_factory=list)
    remedy: str = ""

    def full_text(self) -> str:
        """Return what ``str`` says, with all files, one per line below it."""
        text = f"{self.problem}; {self.remedy}" if self.remedy else self.problem
        return "\n    ".join([text, *self.files])

    def __str__(self) -> str:
        text = self.problem
        if self.files:
            rest = len(self.files) - SHOWN_FILES
            text += ": " + ", ".join(self.files[:SHOWN_FILES]) + (f" and {rest} more" if rest > 0 else "")
        return f"{text}; {self.remedy}" if self.remedy else text


@dataclass
class Report:
    """Result of `pne.datasets.doctor.check`.

    Attributes
    ----------
    dataset, title, data_root : str
        What was examined.
    quick : bool
        Whether only headers and a part of the labels were read.
    counts : dict
        Per split: ``images`` and ``labels`` found and ``official`` number of images.
    pixels : dict
        Per split, pixels of each label value that occurs, as stored on disk.
    errors, warnings : list of Finding
        Errors make training pointless; warnings are for the reader to judge.
    fingerprint : str or None
        Fingerprint of the data set; None after a quick examination.
    """

    dataset: str
    title: str
    data_root: str
    quick: bool
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    pixels: dict[str, dict[int, int]] = field(default_factory=dict)
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    fingerprint: str | None = None

    def text(self, *, every_file: bool = False) -> str:
        """Return the report for a reader, with the first files of each finding or with every one."""
        shown = Finding.full_text if every_file else str
        lines = [f"{self.title} in {self.data_root}" + (" (quick: headers and some labels)" if self.quick else "")]
        for split, numbers in self.counts.items():
            found = f"{numbers['images']:6} images, {numbers['labels']:6} labels"
            lines.append(f"  {split:6} {found}; official {numbers['official']}")
        lines += [f"error: {shown(finding)}" for finding in self.errors]
        lines += [f"warning: {shown(finding)}" for finding in self.warnings]
        lines.append(f"fingerprint: {self.fingerprint or 'not computed'}")
        lines.append("result: " + (f"{len(self.errors)} errors" if self.errors else "fit for training"))
        return "\n".join(lines)

    def write(self, path: Path | str) -> None:
        """Write the report as JSON to ``path`` and, for a reader, beside it with the suffix ``.txt``.

        Both name every file. A workflow that declares the first as a rule's output deletes it when the examination
        fails; the other stays.
        """
        path = Path(path)
        write_text(path.with_suffix(".txt"), self.text(every_file=True) + "\n")
        write_text(path, json.dumps(asdict(self), indent=1) + "\n")

    def raise_for_errors(self, written: Path | str | None = None) -> None:
        """Do nothing if there are no errors.

        Parameters
        ----------
        written : Path, optional
            Where `write` put the report; the error names the text beside it.

        Raises
        ------
        UserError
            With all errors, each with its first files and what to do.
        """
        if self.errors:
            found = "\n  ".join(map(str, self.errors))
            where = f"\n  all files: {Path(written).with_suffix('.txt')}" if written is not None else ""
            raise UserError(f"{self.data_root}: {self.title} is not fit for training:\n  {found}{where}")
