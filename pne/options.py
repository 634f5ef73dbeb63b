"""The options of every loss: names, types, ranges, defaults and presets, free of torch.

The loss classes are built from these tables, and so are the declarations of the experiments: a default or an allowed
value has this one home.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

__all__ = ["LOSSES", "PRESETS", "Option", "OptionError", "non_default_options", "resolve_options"]


class OptionError(ValueError):
    """An unknown loss, option or preset, or a value that an option does not allow.

    Attributes
    ----------
    loss : str
        The loss in question.
    option : str or None
        The option in question; None where the loss or the preset is unknown.
    allowed : str
        What is allowed instead.
    """

    def __init__(self, message: str, *, loss: str, option: str | None, allowed: str) -> None:
        super().__init__(message)
        self.loss = loss
        self.option = option
        self.allowed = allowed

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_error, (str(self), self.loss, self.option, self.allowed)


def _restore_error(message: str, loss: str, option: str | None, allowed: str) -> OptionError:
    return OptionError(message, loss=loss, option=option, allowed=allowed)


@dataclass(frozen=True)
class Option:
    """One hyper-parameter of a loss, a scalar that YAML and JSON can hold.

    Attributes
    ----------
    name : str
    kind : {'float', 'int', 'bool', 'choice'}
    default : float, int, bool, str or None
    choices : tuple of str
        The allowed words of a 'choice'.
    minimum, maximum : float or None
        Inclusive bounds of a number.
    exclusive : bool
        Whether `minimum` itself is excluded.
    optional : bool
        Whether None is allowed.
    doc : str
        One sentence of meaning.
    """

    name: str
    kind: str
    default: Any
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    exclusive: bool = False
    optional: bool = False
    doc: str = ""

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        if self.kind == "choice":
            words = " | ".join(repr(choice) for choice in self.choices)
        elif self.kind == "bool":
            words = "True | False"
        else:
            words = {"float": "a finite number", "int": "an integer"}[self.kind]
            if self.minimum is not None:
                words += f" {'>' if self.exclusive else '>='} {self.minimum:g}"
            if self.maximum is not None:
                words += f"{' and' if self.minimum is not None else ''} <= {self.maximum:g}"
        return f"{words} | None" if self.optional else words

    def accepts(self, value: Any) -> bool:
        """Tell whether `value` is allowed."""
        if value is None:
            return self.optional
        if self.kind == "choice":
            return isinstance(value, str) and value in self.choices
        if self.kind == "bool":
            return isinstance(value, bool)
        numbers = (int, float) if self.kind == "float" else (int,)
        if isinstance(value, bool) or not isinstance(value, numbers) or not math.isfinite(value):
            return False
        if self.minimum is not None and (value < self.minimum or (self.exclusive and value == self.minimum)):
            return False
        return self.maximum is None or value <= self.maximum

    def normalise(self, value: Any) -> Any:
        """Bring an accepted value to the option's own type (1 becomes 1.0 for a float)."""
        return float(value) if self.kind == "float" and value is not None else value


def _table(*options: Option) -> Mapping[str, Option]:
    return MappingProxyType({option.name: option for option in options})


_TEMPERATURE = Option(
    "temperature", "float", 1.0, minimum=1e-6, doc="Divides the cosine similarity; dimensionless."
)  # the bound keeps similarity / temperature far from the largest float32

_SAMPLING = (
    Option("num_samples", "int", 100, minimum=1, doc="Positives and negatives drawn per class and image."),
    Option("max_anchors", "int", 200, minimum=1, optional=True, doc="Largest number of anchor pixels per image."),
    Option("max_set_size", "int", None, minimum=1, optional=True, doc="Anchor sets with more pixels are skipped."),
    Option("anchors_per_set", "int", None, minimum=1, optional=True, doc="Anchors drawn from each set."),
    Option(
        "sampling",
        "choice",
        "random",
        choices=("random", "raster"),
        doc="Distinct random pixels, or the first ones row by row, repeated cyclically up to the number wanted.",
    ),
    Option("detach_samples", "bool", False, doc="No gradient through positives and negatives."),
    Option("detach_anchor_norm", "bool", False, doc="No gradient through the length of the anchor."),
    Option(
        "anchor_sets",
        "choice",
        "individual",
        choices=("individual", "mixed"),
        doc="One set per predicted and true class, or one per true class.",
    ),
    Option(
        "negatives",
        "choice",
        "corresponding",
        choices=("corresponding", "hard", "random"),
        doc="Correct pixels of the class the anchor was mistaken for; or, of all other classes, the most similar ones "
        "or random ones.",
    ),
    Option(
        "reduction",
        "choice",
        "anchor_mean",
        choices=("anchor_mean", "set_size"),
        doc="Mean over the anchors of the batch; set_size multiplies it by mean set size / num_samples.",
    ),
    Option(
        "empty_negatives",
        "choice",
        "drop",
        choices=("drop", "anchors"),
        doc="Leave out anchors without a negative, or take their set's own anchors as negatives.",
    ),
)

_WEIGHTS = (
    Option(
        "positive_weight",
        "choice",
        "softmax",
        choices=("softmax", "logit"),
        optional=True,
        doc="Weight of a positive: its largest class probability, its largest class score, or none.",
    ),
    Option("normalize_weight", "bool", True, doc="Divide the weights by their mean over the drawn positives."),
)

LOSSES: Mapping[str, Mapping[str, Option]] = MappingProxyType(
    {
        "PNELoss": _table(_TEMPERATURE, *_SAMPLING[:-2], *_WEIGHTS, *_SAMPLING[-2:]),
        "AsymmetricContrastLoss": _table(_TEMPERATURE, *_SAMPLING),
        "PixelContrastLoss": _table(
            Option("temperature", "float", 0.1, minimum=1e-6, doc="Divides the cosine similarity; dimensionless."),
            Option("base_temperature", "float", 0.07, minimum=1e-6, doc="The loss is scaled by temperature / this."),
            Option("max_anchors", "int", 1024, minimum=1, doc="Largest number of anchors per call, over the batch."),
            Option("anchors_per_class", "int", 100, minimum=1, doc="Anchors per class and image."),
            Option(
                "error_share",
                "float",
                0.5,
                minimum=0.0,
                maximum=1.0,
                doc="Share of misclassified pixels among the anchors of a class.",
            ),
            Option(
                "memory_size",
                "int",
                None,
                minimum=1,
                optional=True,
                doc="Length of each class's segment queue and of its pixel queue; None contrasts within the batch.",
            ),
            Option("pixels_per_image", "int", 10, minimum=1, doc="Pixels per class and image for the pixel queue."),
        ),
    }
)
"""The options of each loss, by class name and option name."""

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "PNELoss": MappingProxyType(
            {
                "paper": MappingProxyType({}),
                "authors": MappingProxyType(
                    {
                        "max_anchors": None,
                        "max_set_size": 199,
                        "anchors_per_set": 100,
                        "sampling": "raster",
                        "detach_samples": True,
                        "detach_anchor_norm": True,
                        "normalize_weight": False,
                        "reduction": "set_size",
                        "empty_negatives": "anchors",
                    }
                ),
            }
        ),
        "AsymmetricContrastLoss": MappingProxyType({"paper": MappingProxyType({})}),
        "PixelContrastLoss": MappingProxyType({}),
    }
)
"""Named settings of each loss, as differences from the defaults: the paper's text, and the released code."""


def resolve_options(loss: str, options: Mapping[str, Any], preset: str | None = None) -> dict[str, Any]:
    """Fill in and check the options of a loss.

    Parameters
    ----------
    loss : str
        Class name, a key of `LOSSES`.
    options : Mapping
        Given options; they take precedence over the preset's.
    preset : str, optional
        A key of ``PRESETS[loss]``.

    Returns
    -------
    dict
        Every option of the loss in the order of the table.

    Raises
    ------
    OptionError
        Unknown loss, preset or option, or a value that is not allowed.

    Examples
    --------
    >>> resolve_options("PNELoss", {"temperature": 2}, preset="authors")["max_set_size"]
    199
    >>> resolve_options("PNELoss", {"temprature": 2})
    Traceback (most recent call last):
    pne.options.OptionError: temprature is no option of PNELoss; did you mean temperature? allowed: temperature, \
num_samples, max_anchors, max_set_size, anchors_per_set, sampling, detach_samples, detach_anchor_norm, anchor_sets, \
negatives, positive_weight, normalize_weight, reduction, empty_negatives
    """
    if loss not in LOSSES:
        raise _unknown(loss, loss, "loss", LOSSES, option=None)
    table = LOSSES[loss]
    if preset is not None and preset not in PRESETS[loss]:
        raise _unknown(loss, preset, f"preset of {loss}", PRESETS[loss], option=None)
    for name in options:
        if name not in table:
            raise _unknown(loss, name, f"option of {loss}", table, option=str(name))
    values = {name: option.default for name, option in table.items()}
    values.update(PRESETS[loss][preset] if preset is not None else {})
    values.update(options)
    for name, option in table.items():
        if not option.accepts(values[name]):
            message = f"{loss}: option {name} must be {option.allowed}; got {values[name]!r}"
            raise OptionError(message, loss=loss, option=name, allowed=option.allowed)
        values[name] = option.normalise(values[name])
    return values


def non_default_options(loss: str, options: Mapping[str, Any], preset: str | None = None) -> dict[str, Any]:
    """Return the checked options that differ from the defaults of the class.

    Takes and raises what `resolve_options` does. The result identifies the setting: a preset, its spelled-out options
    and a default given explicitly come to the same.
    """
    resolved = resolve_options(loss, options, preset)
    return {name: value for name, value in resolved.items() if value != LOSSES[loss][name].default}


def _unknown(loss: str, name: Any, what: str, known: Mapping[str, Any], option: str | None) -> OptionError:
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f" did you mean {close[0]}?" if close else ""
    allowed = ", ".join(known) or "(there are none)"
    return OptionError(f"{name} is no {what};{hint} allowed: {allowed}", loss=loss, option=option, allowed=allowed)
