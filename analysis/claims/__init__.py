"""What ``experiments/claims.yaml`` may say: claims of the paper, each a quantity of table cells with bounds.

A quantity is computed alike from printed and from measured values, so a claim can be held against both.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pne.spec.reading import raise_problems, read_model, suggest
from pne.spec.schema import Column, Key, Table


class Place(NamedTuple):
    """A cell of a declared table."""

    table: str
    row: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.row}.{self.column}"


class _Check(BaseModel):
    """One quantity and the bounds it must keep; a bound of 0 asks for the sign alone."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    table: Key
    column: Key | None = Field(default=None, description="Default: the table's first column of mIoU.")
    minimum: float | None = None
    maximum: float | None = None

    @model_validator(mode="after")
    def _is_bounded(self) -> "_Check":
        if self.minimum is None and self.maximum is None:
            raise ValueError("a check needs a minimum, a maximum or both")
        return self

    @property
    def of_sign(self) -> bool:
        """Whether only the sign is claimed; a size is comparable on the paper's data alone."""
        return all(bound in (None, 0) for bound in (self.minimum, self.maximum))


class Difference(_Check):
    """A row minus another, in the column's unit."""

    kind: Literal["difference"]
    row: Key
    minus: Key
    minus_table: Key | None = Field(default=None, description="Default: the same table.")

    def places(self, tables: Mapping[str, Table]) -> list[Place]:
        """Return the cells that the quantity is computed from."""
        other = self.minus_table or self.table
        return [
            Place(self.table, self.row, _column(self, tables[self.table])),
            Place(other, self.minus, _column(self, tables[other])),
        ]

    def quantity(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Compute the quantity from the values of the cells, shape (R,) each; shape (R,)."""
        return values[0] - values[1]


class Ratio(_Check):
    """A row divided by another."""

    kind: Literal["ratio"]
    row: Key
    over: Key

    def places(self, tables: Mapping[str, Table]) -> list[Place]:
        """Return the cells that the quantity is computed from."""
        column = _column(self, tables[self.table])
        return [Place(self.table, self.row, column), Place(self.table, self.over, column)]

    def quantity(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Compute the quantity from the values of the cells, shape (R,) each; shape (R,)."""
        return values[0] / values[1]


class Value(_Check):
    """A row's value itself."""

    kind: Literal["value"]
    row: Key

    def places(self, tables: Mapping[str, Table]) -> list[Place]:
        """Return the cells that the quantity is computed from."""
        return [Place(self.table, self.row, _column(self, tables[self.table]))]

    def quantity(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Compute the quantity from the values of the cells, shape (R,) each; shape (R,)."""
        return values[0]


class Spread(_Check):
    """Largest minus smallest value of a group of rows."""

    kind: Literal["spread"]
    group: Key

    def places(self, tables: Mapping[str, Table]) -> list[Place]:
        """Return the cells that the quantity is computed from."""
        table = tables[self.table]
        column = _column(self, table)
        return [Place(self.table, key, column) for key, row in table.rows.items() if row.group == self.group]

    def quantity(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Compute the quantity from the values of the cells, shape (R,) each; shape (R,)."""
        return np.max(values, 0) - np.min(values, 0)


class Lead(_Check):
    """A row minus the best other row of its group."""

    kind: Literal["lead"]
    row: Key

    def places(self, tables: Mapping[str, Table]) -> list[Place]:
        """Return the cells that the quantity is computed from."""
        table = tables[self.table]
        column = _column(self, table)
        group = table.rows[self.row].group
        others = [key for key, row in table.rows.items() if row.group == group and key != self.row]
        return [Place(self.table, key, column) for key in (self.row, *others)]

    def quantity(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Compute the quantity from the values of the cells, shape (R,) each; shape (R,)."""
        return values[0] - np.max(values[1:], 0)


Check = Annotated[Difference | Ratio | Value | Spread | Lead, Field(discriminator="kind")]


class Claim(BaseModel):
    """One claim; it holds if all its checks do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    statement: str = Field(description="The claim, in plain words.")
    paper: list[str] = Field(min_length=1, description="LaTeX labels in the paper's source.")
    checks: list[Check] = Field(min_length=1)
    note: str | None = Field(default=None, description="What must be known to judge it, such as a bound that is ours.")


class Claims(BaseModel):
    """``experiments/claims.yaml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claims: dict[Key, Claim]


def load_claims(path: Path, tables: Mapping[str, Table]) -> dict[str, Claim]:
    """Read the claims and check that every cell they name is declared.

    Raises
    ------
    UserError
        With one line per mistake: file, claim and key.
    """
    claims = read_model(path, Claims).claims
    problems = []
    for key, claim in claims.items():
        for index, check in enumerate(claim.checks):
            where = f"{path}: claims.{key}.checks.{index}"
            problems += [f"{where}.{problem}" for problem in _dangling(check, tables)]
    raise_problems(problems)
    return claims


def column_of(place: Place, tables: Mapping[str, Table]) -> Column:
    """Return the declared column of a cell."""
    return tables[place.table].columns[place.column]


def _column(check: _Check, table: Table) -> str:
    if check.column is not None:
        return check.column
    return next((key for key, column in table.columns.items() if column.metric == "miou"), "")


def _dangling(check: _Check, tables: Mapping[str, Table]) -> list[str]:
    problems = []
    for key in ("table", "minus_table"):
        name = getattr(check, key, None)
        if name is not None and name not in tables:
            problems.append(f"{key}: no table {name!r}; {suggest(name, tables)}")
    if problems:
        return problems
    table = tables[check.table]
    for key in ("row", "minus", "over"):
        name = getattr(check, key, None)
        owner = tables[getattr(check, "minus_table", None) or check.table] if key == "minus" else table
        if name is not None and name not in owner.rows:
            problems.append(f"{key}: no row {name!r} in table {owner.table}; {suggest(name, owner.rows)}")
    group = getattr(check, "group", None)
    groups = {row.group for row in table.rows.values()}
    if group is not None and group not in groups:
        problems.append(f"group: no group {group!r} in table {table.table}; {suggest(group, sorted(groups))}")
    for name in {check.table, getattr(check, "minus_table", None) or check.table}:
        columns = tables[name].columns
        if _column(check, tables[name]) not in columns:
            problems.append(
                f"column: no column {check.column!r} in table {name}; {suggest(check.column or '', columns)}"
            )
    return problems
