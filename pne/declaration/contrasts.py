"""What stands under ``contrast:`` of a row, resolved to a loss, its options and the settings of its branch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pne.declaration.reading import suggest
from pne.declaration.schema import BRANCH_KEYS, Contrast
from pne.errors import UserError
from pne.options import LOSSES, OptionError, non_default_options

PROJECTION_DEFAULTS = {"channels": 256, "hidden": None, "norm_cfg": None}


@dataclass(frozen=True)
class ResolvedContrast:
    """A contrastive loss as one run uses it.

    Attributes
    ----------
    name : str
        The named contrast that the row starts from.
    loss : str
        Class of ``pne.losses``.
    options : dict
        Its options that differ from the class defaults.
    weight : float
        Factor of the loss.
    start : int
        First iteration that it takes part in.
    projection : dict or None
        Settings of the projection that are not the defaults.
    """

    name: str
    loss: str
    options: Mapping[str, Any]
    weight: float
    start: int
    projection: Mapping[str, Any] | None

    def branch_config(self, seed: int) -> dict[str, Any]:
        """Return the config of the ``ContrastBranch``; defaults of start and projection are left out."""
        branch: dict[str, Any] = {
            "type": "ContrastBranch",
            "loss": {"type": self.loss, **self.options},
            "weight": self.weight,
        }
        if self.start:
            branch["start"] = self.start
        if self.projection:
            branch["projection"] = dict(self.projection)
        return branch | {"seed": seed}

    def description(self) -> dict[str, Any]:
        """Return what ``spec.yaml`` says about it."""
        return {
            "loss": self.loss,
            "options": dict(self.options),
            "weight": self.weight,
            "start": self.start,
            "projection": dict(self.projection) if self.projection else None,
        }


def resolve_contrast(
    declared: Mapping[str, Any], named: Mapping[str, Contrast], changes: Mapping[str, Mapping[str, Any]]
) -> ResolvedContrast:
    """Resolve the ``contrast:`` of a row.

    Parameters
    ----------
    declared : Mapping
        ``use``, ``weight``, ``start``, ``projection``; every other key is an option of the loss.
    named : Mapping of str to Contrast
        The files of ``experiments/contrast``.
    changes : Mapping
        The track's changes to named contrasts; the row's own keys take precedence.

    Raises
    ------
    UserError
        If a name or an option is unknown or a value is out of range; the message starts with the key.
    """
    if "use" not in declared:
        raise UserError(f"contrast.use: missing; name a file of experiments/contrast; {suggest('', named)}")
    name = declared["use"]
    if not isinstance(name, str) or name not in named:
        raise UserError(f"contrast.use: no contrast {name!r}; {suggest(str(name), named)}")
    base = named[name]
    settings = {**changes.get(name, {}), **declared}
    options = base.options | {key: value for key, value in settings.items() if key not in BRANCH_KEYS}
    weight, start = settings.get("weight", base.weight), settings.get("start", base.start)
    projection = settings.get("projection", base.projection)
    _check_branch(weight, start, projection)
    try:
        non_default = non_default_options(base.loss, options, base.preset)
    except OptionError as error:
        raise UserError(f"contrast.{_option_message(error)}") from None
    projection = {key: value for key, value in (projection or {}).items() if value != PROJECTION_DEFAULTS[key]} or None
    return ResolvedContrast(name, base.loss, non_default, float(weight), start, projection)


def _option_message(error: OptionError) -> str:
    # "PNELoss: option temperature must be ..." becomes "temperature: must be ...", to follow the key.
    prefix = f"{error.loss}: option {error.option} "
    message = str(error)
    return (
        f"{error.option}: {message.removeprefix(prefix)} (option of {error.loss})"
        if message.startswith(prefix)
        else message
    )


def _check_branch(weight: Any, start: Any, projection: Any) -> None:
    numeric = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not (numeric and math.isfinite(weight) and weight >= 0):
        raise UserError(f"contrast.weight: expected a finite number >= 0, got {weight!r}")
    if not isinstance(start, int) or isinstance(start, bool) or start < 0:
        raise UserError(f"contrast.start: expected an iteration number >= 0, got {start!r}")
    if projection is None:
        return
    if not isinstance(projection, Mapping):
        raise UserError(f"contrast.projection: expected keys and values, got {projection!r}")
    for key, value in projection.items():
        if key not in PROJECTION_DEFAULTS:
            raise UserError(f"contrast.projection.{key}: unknown key; {suggest(str(key), PROJECTION_DEFAULTS)}")
        if value is None and key != "channels":
            continue
        if key == "norm_cfg" and not (isinstance(value, Mapping) and isinstance(value.get("type"), str)):
            raise UserError(f"contrast.projection.norm_cfg: expected keys and values with a type, got {value!r}")
        if key != "norm_cfg" and not (isinstance(value, int) and not isinstance(value, bool) and value > 0):
            raise UserError(f"contrast.projection.{key}: expected a number of channels > 0, got {value!r}")


def check_named(contrast: Contrast) -> None:
    """Check the options of a named contrast by themselves.

    Raises
    ------
    UserError
        As `resolve_contrast`.
    """
    _check_branch(contrast.weight, contrast.start, contrast.projection)
    try:
        non_default_options(contrast.loss, contrast.options, contrast.preset)
    except OptionError as error:
        unknown_loss = contrast.loss not in LOSSES
        place = "loss: " if unknown_loss else "preset: " if error.option is None else "options."
        raise UserError(f"{place}{_option_message(error)}") from None
