"""What ``experiments/claims.yaml`` may say: claims of the paper, each check one comparison of table cells.

A cell is written ``column(table.row)``; the name of a group in place of a row stands for all its rows. A check is
computed alike from printed and from measured values, so that a claim can be held against both.
"""

import ast
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from analysis.tables import EMBEDDING
from analysis.tables.embedding import CELLS
from analysis.uncertainty import Estimate, lead, over_seeds, spread
from pne.spec.reading import raise_problems, read_model, suggest
from pne.spec.schema import Key, Row, Strict, Table

Array = NDArray[np.float64]

_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_EXTREMES = {"min": np.min, "max": np.max}
_RULES = {"lead": lead, "spread": spread}
_BELOW = (ast.Lt, ast.LtE)
ALLOWED = (
    "numbers, + - * /, cells such as miou(contrast_form.pne_r50), min(...) and max(...) of rows that are not trained, "
    "all compared by > < >= <= with a number or with each other; lead(...) or spread(...) as a whole side"
)


class Place(NamedTuple):
    """A cell of a declared table."""

    table: str
    row: str
    column: str

    def __str__(self) -> str:
        return f"{self.column}({self.table}.{self.row})"


Values = Mapping[Place, Array]


class Claim(Strict):
    """One claim; it holds if all its checks do."""

    statement: str = Field(description="The claim, in plain words.")
    paper: list[str] = Field(min_length=1, description="LaTeX labels in the paper's source.")
    quote: str | None = Field(default=None, description="The paper's own words, as its source has them; none: not its.")
    checks: list[str] = Field(default=[], description="See `parse`.")
    not_tested: str | None = Field(default=None, description="In place of checks: why there are none.")
    note: str | None = Field(default=None, description="What must be known to judge it, such as a bound that is ours.")

    @model_validator(mode="after")
    def _is_tested_or_says_why_not(self) -> "Claim":
        if bool(self.checks) == bool(self.not_tested):
            raise ValueError("a claim has checks, or says under not_tested why it has none")
        return self


class Claims(Strict):
    """``experiments/claims.yaml``."""

    claims: dict[Key, Claim]


class Check(NamedTuple):
    """One quantity and the bounds that it must keep.

    Attributes
    ----------
    text : str
        As declared.
    places : tuple of Place
        Cells that the quantity is computed from.
    minimum, maximum : float or None
        A bound of 0 asks for the sign alone.
    rule : callable
        From the quantity's values over seeds to its estimate.
    """

    text: str
    quantity: ast.expr
    places: tuple[Place, ...]
    minimum: float | None
    maximum: float | None
    rule: Callable[[Array], Estimate]
    tables: Mapping[str, Table]

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Smallest and largest value that keep the claim."""
        return self.minimum, self.maximum

    @property
    def of_signs(self) -> bool:
        """Whether only trained rows are compared, and only by sign: a size asks for the paper's own data."""
        trained = all(row_of(place, self.tables).is_trained for place in self.places)
        return trained and all(bound in (None, 0) for bound in self.bounds)

    def estimate(self, values: Values) -> Estimate:
        """Estimate the quantity from the values of its cells, shape (..., n) each, of n seeds."""
        if self.rule is over_seeds:
            return over_seeds(_evaluate(self.quantity, self.tables, values))
        return self.rule(np.stack(list(_settings(self.quantity.args, self.tables, values).values()), -2))


def parse(text: str, tables: Mapping[str, Table]) -> Check:
    """Read a check such as ``miou(contrast_form.pne_r50) - miou(contrast_form.base_r50) >= 2.8``.

    One or two bounds may be given; two sides with cells are compared by their difference. ``lead(a, b, ...)`` is a
    minus the best of the others, ``spread(a, b, ...)`` the largest minus the smallest.

    Raises
    ------
    ValueError
        With what is wrong and what is allowed.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no expression ({error.msg}); allowed: {ALLOWED}") from None
    if not isinstance(node, ast.Compare) or not all(isinstance(op, (*_BELOW, ast.Gt, ast.GtE)) for op in node.ops):
        raise ValueError(f"{text!r} is no comparison; allowed: {ALLOWED}")
    sides, ops = [node.left, *node.comparators], list(node.ops)
    numbers = [_number(side) for side in sides]
    if len(sides) == 2 and numbers == [None, None]:
        sides, numbers = [ast.BinOp(sides[0], ast.Sub(), sides[1]), ast.Constant(0)], [None, 0.0]
    if numbers.count(None) != 1 or (len(sides) == 3 and numbers[1] is not None) or len(sides) > 3:
        raise ValueError(f"{text!r}: expected cells on one side or on both, or between two bounds")
    bounds: dict[bool, float] = {}
    place = numbers.index(None)
    for index, op in enumerate(ops):
        bound = numbers[index] if index < place else numbers[index + 1]
        if (bound == 0) != isinstance(op, (ast.Lt, ast.Gt)):
            raise ValueError(f"{text!r}: a bound of 0 is written < or >, and is not kept by 0; any other <= or >=")
        bounds[isinstance(op, _BELOW) == (index < place)] = bound  # whether it is a minimum
    if len(bounds) < len(ops):
        raise ValueError(f"{text!r}: expected a smallest and a largest value")
    # Evaluated once with a value for whatever cell is asked for: that names the cells and every mistake.
    quantity, asked = sides[place], defaultdict(lambda: np.ones(1))
    match quantity:
        case ast.Call(ast.Name(name), args, []) if name in _RULES:
            rule, settings = _RULES[name], _settings(args, tables, asked)
            trained = [key for key in settings if isinstance(key, Place) and row_of(key, tables).is_trained]
            if len(trained) < max(2, len(settings)):
                raise ValueError(f"{text!r}: lead and spread compare two cells of trained rows or more")
        case _:
            rule = over_seeds
            _evaluate(quantity, tables, asked)
    if not asked:
        raise ValueError(f"{text!r} names no cell; allowed: {ALLOWED}")
    return Check(text, quantity, tuple(asked), bounds.get(True), bounds.get(False), rule, tables)


def _number(node: ast.expr) -> float | None:
    try:
        return float(ast.literal_eval(node))
    except (TypeError, ValueError):
        return None


def _evaluate(node: ast.expr, tables: Mapping[str, Table], values: Values) -> Array:
    if (number := _number(node)) is not None:
        return np.float64(number)
    match node:
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_evaluate(left, tables, values), _evaluate(right, tables, values))
        case ast.Call(ast.Name(name), [_, *_] as args, []) if name in _EXTREMES:
            settings = _settings(args, tables, values)
            for key in settings:
                # The extreme of noisy means is biased; lead and spread know by how much.
                if not isinstance(key, Place) or row_of(key, tables).is_trained:
                    got = f"got {key}; compare trained ones with lead or spread"
                    raise ValueError(f"{ast.unparse(node)!r}: expected cells of rows that are not trained, {got}")
            return _EXTREMES[name](list(settings.values()), 0)
        case ast.Call(ast.Name(), [ast.Attribute(ast.Name())], []):
            places = _places(node, tables)
            if len(places) > 1:
                raise ValueError(f"{ast.unparse(node)!r} is a group of {len(places)} rows; expected one row")
            return values[places[0]]
    raise ValueError(f"{ast.unparse(node)!r} is not allowed; allowed: {ALLOWED}")


def _settings(args: Sequence[ast.expr], tables: Mapping[str, Table], values: Values) -> dict[Place | str, Array]:
    """Evaluate what is compared with each other, groups row by row; nothing is compared with itself."""
    found: dict[Place | str, Array] = {}
    for arg in args:
        match arg:
            case ast.Call(ast.Name(), [ast.Attribute(ast.Name())], []):
                found |= {place: values[place] for place in _places(arg, tables)}
            case _:
                found[ast.unparse(arg)] = _evaluate(arg, tables, values)
    return found


def _places(cell: ast.Call, tables: Mapping[str, Table]) -> list[Place]:
    column, table, name = cell.func.id, cell.args[0].value.id, cell.args[0].attr
    if table not in tables:
        raise ValueError(f"{ast.unparse(cell)}: no table {table!r}; {suggest(table, tables)}")
    columns = CELLS if table == EMBEDDING else tables[table].columns
    if column not in columns:
        raise ValueError(f"{ast.unparse(cell)}: no column {column!r} in table {table}; {suggest(column, columns)}")
    rows = tables[table].rows
    chosen = [name] if name in rows else [key for key, row in rows.items() if row.group == name]
    if not chosen:
        raise ValueError(f"{ast.unparse(cell)}: no row {name!r} in table {table}; {suggest(name, rows)}")
    return [Place(table, row, column) for row in chosen]


def row_of(place: Place, tables: Mapping[str, Table]) -> Row:
    """Return the declared row of a cell."""
    return tables[place.table].rows[place.row]


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
            try:
                parse(check, tables)
            except ValueError as error:
                problems.append(f"{path}: claims.{key}.checks.{index}: {error}")
    raise_problems(problems)
    return claims
