"""The cells of a printed table: what kind of number stands there, and how it is written."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from pne.declaration.schema import Published


class CellKind(str, Enum):
    """Where the content of a cell comes from."""

    LABEL = "label"
    SETTING = "setting"
    PAPER = "paper"  # printed in the paper, from its authors' own run
    QUOTED = "quoted"  # printed in the paper, from the literature
    QUOTED_ZOO = "quoted-zoo"  # printed in the paper, from the mmsegmentation zoo (the paper's dagger)
    NOT_REPORTED = "not-reported"  # the paper prints "-"
    MEASURED = "measured"
    EXTERNAL = "external"  # entered by hand from an evaluation server
    MISSING = "missing"  # to be measured, but no result is there
    EMPTY = "empty"  # nothing to measure here


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes
    ----------
    kind : CellKind
    text : str
        LaTeX text of labels and settings.
    value, spread : float or None
        Number in the column's unit and its sample standard deviation over seeds (None with one seed).
    seeds : int
        Number of runs behind a measured value.
    delta : float or None
        Difference to the row's baseline, same unit.
    decimals : int or None
        Digits after the point; None: as many as the number needs, thousands separated.
    bold : bool
    notes : tuple of str
        Footnotes, LaTeX text.
    """

    kind: CellKind
    text: str = ""
    value: float | None = None
    spread: float | None = None
    seeds: int = 0
    delta: float | None = None
    decimals: int | None = 1
    bold: bool = False
    notes: tuple[str, ...] = ()


def published_cell(published: Published | None, decimals: int | None) -> Cell:
    """Turn a declared number of the paper into a cell; None means that the paper prints no such cell."""
    if published is None:
        return Cell(CellKind.EMPTY)
    return Cell(
        CellKind(published.kind),
        value=published.value,
        delta=published.delta,
        decimals=decimals,
        bold=published.bold,
    )


def setting_cell(setting: str | bool | float | None) -> Cell:
    """Turn a declared setting into a cell: a tick for true, nothing for false or None, else its text."""
    if setting is None or setting is False:
        return Cell(CellKind.SETTING)
    if setting is True:
        return Cell(CellKind.SETTING, text=r"$\surd$")
    return Cell(CellKind.SETTING, text=f"{setting:g}" if isinstance(setting, int | float) else setting)


def write_cell(cell: Cell, text: Callable[[str], str], minus: str, plus_minus: str, missing: str) -> str:
    """Write a cell without its bold face and footnote marks.

    Parameters
    ----------
    cell : Cell
    text : callable
        Turns LaTeX text into the target's text.
    minus, plus_minus, missing : str
        Signs of the target: a minus, ±, and the dash of a missing value.
    """
    if cell.kind is CellKind.MISSING:
        return missing
    if cell.kind is CellKind.NOT_REPORTED:
        return "-"
    if cell.value is None:
        return text(cell.text)
    number = write_number(cell.value, cell.decimals).replace("-", minus)
    if cell.spread is not None:
        number += f"{plus_minus}{write_number(cell.spread, cell.decimals)}"
    if cell.delta is not None:
        delta = write_number(cell.delta, cell.decimals)
        number += f"({delta.replace('-', minus) if delta.startswith('-') else f'+{delta}'})"
    return number


def write_number(value: float, decimals: int | None) -> str:
    """Write a number with its decimals; None: as many as it needs, thousands separated. Zero has no minus.

    >>> write_number(-0.04, 1), write_number(40000, None), write_number(6e-05, None)
    ('0.0', '40,000', '0.00006')
    """
    if decimals is None:
        return f"{Decimal(str(value)).normalize():,f}"
    written = f"{value:.{decimals}f}"
    return written.removeprefix("-") if float(written) == 0 else written
