"""What stands under ``contrast:`` of a row, resolved to a loss, its options and the settings of its branch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pne.errors import UserError
from pne.options import LOSSES, PRESETS, OptionError, non_default_options, unknown
from pne.spec.own_loss import check_own_options
from pne.spec.reading import check_model, suggest
from pne.spec.schema import Branch, Contrast


@dataclass(frozen=True)
class ResolvedContrast:
    """A contrastive loss as one run uses it.

    Attributes
    ----------
    name : str
        The named contrast that the row starts from.
    loss : str
        Class of ``pne.losses``, or ``module:Class``.
    options : dict
        Its options that differ from the class defaults; of a loss of one's own, those that are declared.
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
        loss = {"type": self.loss, **self.options}
        branch: dict[str, Any] = {"type": "ContrastBranch", "loss": loss, "weight": self.weight}
        if self.start:
            branch["start"] = self.start
        if self.projection:
            branch["projection"] = dict(self.projection)
        return branch | {"seed": seed}

    def description(self) -> dict[str, Any]:
        """Return what ``spec.yaml`` says about it."""
        return {key: value for key, value in asdict(self).items() if key != "name"}


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
        If a name or an option is unknown or a value is out of range; each line starts with the key.
    """
    if "use" not in declared:
        raise UserError(f"contrast.use: missing; name a file of experiments/contrast; {suggest('', named)}")
    name = declared["use"]
    if not isinstance(name, str) or name not in named:
        raise UserError(f"contrast.use: no contrast {name!r}; {suggest(str(name), named)}")
    base = named[name]
    settings = base.model_dump(include=set(Branch.model_fields)) | base.options | dict(changes.get(name, {})) | declared
    del settings["use"]
    options = {key: value for key, value in settings.items() if key not in Branch.model_fields}
    branch = check_model(Branch, {key: settings[key] for key in Branch.model_fields}, "contrast.")
    options = _checked(base, options, "contrast.", complete=True)
    projection = branch.projection.model_dump(exclude_defaults=True) if branch.projection else None
    return ResolvedContrast(name, base.loss, options, branch.weight, branch.start, projection or None)


def check_named(contrast: Contrast) -> None:
    """Check loss, preset and options of a named contrast by themselves.

    Raises
    ------
    UserError
        As `resolve_contrast`.
    """
    if contrast.loss not in LOSSES and ":" not in contrast.loss:
        raise UserError(f"loss: {unknown(contrast.loss, 'loss', LOSSES)}, or a class of one's own as module:Class")
    presets = PRESETS.get(contrast.loss, ())
    if contrast.preset is not None and contrast.preset not in presets:
        raise UserError(f"preset: {unknown(contrast.preset, f'preset of {contrast.loss}', presets)}")
    _checked(contrast, contrast.options, "options.", complete=False)


def _checked(contrast: Contrast, options: dict[str, Any], prefix: str, *, complete: bool) -> dict[str, Any]:
    """Return the options that identify the run: of a loss of one's own all that are declared."""
    try:
        if ":" not in contrast.loss:
            return non_default_options(contrast.loss, options, contrast.preset)
        check_own_options(contrast.loss, options, complete=complete)
        return options
    except OptionError as error:
        if error.option is None:
            raise UserError(f"loss: {error}") from None
        if error.problem == str(error):  # an unknown name
            raise UserError(f"{prefix}{error}") from None
        raise UserError(f"{prefix}{error.option}: {error.problem} (option of {contrast.loss})") from None
