"""The options of every loss: one dataclass each, with names, types, ranges and defaults, free of torch.

The loss classes are built from these, and so are the declarations of the experiments: a default or an allowed value has
this one home.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args, get_type_hints

__all__ = ["LOSSES", "PRESETS", "LossOptions", "OptionError", "non_default_options", "option", "resolve_options"]


class OptionError(ValueError):
    """An unknown loss, option or preset, or a value that an option does not allow.

    Attributes
    ----------
    option : str or None
        The option in question; None where the loss or the preset is unknown.
    problem : str
        The message without the names of loss and option.
    """

    def __init__(self, message: str, option: str | None = None, problem: str | None = None) -> None:
        super().__init__(message, option, problem)
        self.option, self.problem = option, problem or message

    def __str__(self) -> str:
        return str(self.args[0])


def option(default: Any, doc: str, *, minimum: float | None = None, maximum: float | None = None) -> Any:
    """Declare an option with its meaning in one sentence and its inclusive bounds."""
    return field(default=default, metadata={"doc": doc, "minimum": minimum, "maximum": maximum})


@dataclass(frozen=True, kw_only=True)
class LossOptions:
    """Options of a loss, checked when made; an integer given for a float becomes one.

    Raises
    ------
    OptionError
        If a value is not allowed.
    """

    loss: ClassVar[str]

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for entry in fields(self):
            value, kinds = getattr(self, entry.name), _kinds(hints[entry.name])
            if not _accepts(kinds, entry, value):
                problem = f"must be {_allowed(kinds, entry)}; got {value!r}"
                raise OptionError(f"{self.loss}: option {entry.name} {problem}", entry.name, problem)
            if float in kinds and type(value) is int:
                object.__setattr__(self, entry.name, float(value))


@dataclass(frozen=True, kw_only=True)
class _Drawing(LossOptions):
    # The bound keeps similarity / temperature far from the largest float32.
    temperature: float = option(1.0, "Divides the cosine similarity; dimensionless.", minimum=1e-6)
    num_samples: int = option(100, "Positives and negatives drawn per class and image.", minimum=1, maximum=100_000)
    max_anchors: int | None = option(200, "Largest number of anchor pixels per image.", minimum=1)
    max_set_size: int | None = option(None, "Anchor sets with more pixels are skipped.", minimum=1)
    anchors_per_set: int | None = option(None, "Anchors drawn from each set.", minimum=1)
    sampling: Literal["random", "raster"] = option(
        "random", "Distinct random pixels, or the first ones row by row, repeated cyclically up to the number wanted."
    )
    detach_samples: bool = option(False, "No gradient through positives and negatives.")
    detach_anchor_norm: bool = option(False, "No gradient through the length of the anchor.")
    anchor_sets: Literal["individual", "mixed"] = option(
        "individual", "One set per predicted and true class, or one per true class."
    )
    negatives: Literal["corresponding", "hard", "random"] = option(
        "corresponding",
        "Correct pixels of the class the anchor was mistaken for; or, of all other classes, the most similar ones or "
        "random ones.",
    )


@dataclass(frozen=True, kw_only=True)
class _AnchorChoice(LossOptions):
    anchors_from: Literal["errors", "labelled"] = option(
        "errors", "Pixels that may be anchors: the misclassified ones, or all that are labelled."
    )
    anchor_draw: Literal["uniform", "balanced"] = option(
        "uniform", "max_anchors draws all candidates alike, or takes equally many from each set."
    )


@dataclass(frozen=True, kw_only=True)
class _Weighting(LossOptions):
    positive_weight: Literal["softmax", "logit"] | None = option(
        "softmax", "Weight of a positive: its largest class probability, its largest class score, or none."
    )
    normalize_weight: bool = option(True, "Divide the weights by their mean over the drawn positives.")


@dataclass(frozen=True, kw_only=True)
class _Averaging(LossOptions):
    reduction: Literal["anchor_mean", "set_size"] = option(
        "anchor_mean",
        "Mean over the anchors of the batch; set_size multiplies it by mean set size / num_samples.",
    )
    empty_negatives: Literal["drop", "anchors"] = option(
        "drop", "Leave out anchors without a negative, or take their set's own anchors as negatives."
    )


# Options of the last base come first; their order names runs.
@dataclass(frozen=True, kw_only=True)
class PNEOptions(_AnchorChoice, _Averaging, _Weighting, _Drawing):
    """Options of the positive-negative equal loss."""

    loss: ClassVar[str] = "PNELoss"


@dataclass(frozen=True, kw_only=True)
class AsymmetricContrastOptions(_AnchorChoice, _Averaging, _Drawing):
    """Options of the asymmetric loss of misclassified pixels."""

    loss: ClassVar[str] = "AsymmetricContrastLoss"

    negative_mean: bool = option(False, "Mean over the negatives in place of their sum.")


@dataclass(frozen=True, kw_only=True)
class PixelContrastOptions(LossOptions):
    """Options of the cross-image pixel contrast."""

    loss: ClassVar[str] = "PixelContrastLoss"

    temperature: float = option(0.1, "Divides the cosine similarity; dimensionless.", minimum=1e-6)
    base_temperature: float = option(0.07, "The loss is scaled by temperature / this.", minimum=1e-6)
    max_anchors: int = option(1024, "Largest number of anchors per call, over the batch.", minimum=1)
    anchors_per_class: int = option(100, "Anchors per class and image.", minimum=1)
    error_share: float = option(
        0.5, "Share of misclassified pixels among the anchors of a class.", minimum=0, maximum=1
    )
    memory_size: int | None = option(
        None,
        "Length of each class's segment queue and of its pixel queue; None contrasts within the batch.",
        minimum=1,
        maximum=100_000,
    )
    pixels_per_image: int = option(10, "Pixels per class and image for the pixel queue.", minimum=1)


LOSSES: Mapping[str, type[LossOptions]] = MappingProxyType(
    {options.loss: options for options in (PNEOptions, AsymmetricContrastOptions, PixelContrastOptions)}
)
"""The options of each loss, by the name of its class."""

_AUTHORS = {
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
PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "PNELoss": {"paper": {}, "authors": MappingProxyType(_AUTHORS)},
        "AsymmetricContrastLoss": {"paper": {}},
        "PixelContrastLoss": {},
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
        Every option of the loss in the order of its dataclass.

    Raises
    ------
    OptionError
        Unknown loss, preset or option, or a value that is not allowed.

    Examples
    --------
    >>> resolve_options("PNELoss", {"temperature": 2}, preset="authors")["max_set_size"]
    199
    >>> resolve_options("PixelContrastLoss", {"temprature": 2})
    Traceback (most recent call last):
    pne.options.OptionError: temprature is no option of PixelContrastLoss; did you mean temperature? allowed: \
temperature, base_temperature, max_anchors, anchors_per_class, error_share, memory_size, pixels_per_image
    """
    if loss not in LOSSES:
        raise unknown(loss, "loss", LOSSES)
    if preset is not None and preset not in PRESETS[loss]:
        raise unknown(preset, f"preset of {loss}", PRESETS[loss])
    names = [entry.name for entry in fields(LOSSES[loss])]
    for name in options:
        if name not in names:
            raise unknown(name, f"option of {loss}", names, option=str(name))
    return asdict(LOSSES[loss](**{**(PRESETS[loss][preset] if preset else {}), **options}))


def non_default_options(loss: str, options: Mapping[str, Any], preset: str | None = None) -> dict[str, Any]:
    """Return the checked options that differ from the defaults of the class.

    Takes and raises what `resolve_options` does. The result identifies the setting: a preset, its spelled-out options
    and a default given explicitly come to the same.
    """
    defaults = resolve_options(loss, {})
    return {name: value for name, value in resolve_options(loss, options, preset).items() if value != defaults[name]}


def unknown(name: Any, what: str, known: Iterable[str], option: str | None = None) -> OptionError:
    """Make the error of a name that is none of the known ones."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f" did you mean {close[0]}?" if close else ""
    return OptionError(f"{name} is no {what};{hint} allowed: {', '.join(known) or '(there are none)'}", option)


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Take a type apart: the allowed words of a Literal, or its type; NoneType beside them where None is allowed."""
    parts = get_args(hint) or (hint,)
    return tuple(kind for part in parts for kind in (get_args(part) or (part,)))


def _accepts(kinds: tuple[Any, ...], entry: "Field[Any]", value: Any) -> bool:
    if value is None or Any in kinds:
        return bool({type(None), Any} & set(kinds))
    if isinstance(value, bool | str):
        return type(value) in kinds or value in kinds
    if not isinstance(value, int | float if float in kinds else int) or not {int, float} & set(kinds):
        return False
    low, high = entry.metadata["minimum"], entry.metadata["maximum"]
    return math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)


def _allowed(kinds: tuple[Any, ...], entry: "Field[Any]") -> str:
    """Put the allowed values into words."""
    names = {float: "a finite number", int: "an integer", bool: "True | False", str: "a text", type(None): "None"}
    low, high = entry.metadata["minimum"], entry.metadata["maximum"]
    bounds = " and".join(f" {sign} {bound:g}" for sign, bound in ((">=", low), ("<=", high)) if bound is not None)
    return " | ".join(
        f"{names[kind]}{bounds if kind in (int, float) else ''}" if kind in names else repr(kind) for kind in kinds
    )
