"""The options of a loss of one's own, read from its source; docs/extending.md shows one that trains."""

import re
import sys
from collections.abc import Callable
from typing import Any, Literal

import pytest

from pne.options import OptionError, resolve_options
from pne.spec.own_loss import Keyword, check_own_options, read_keywords

SOURCE = """
raise RuntimeError("read, not run")

class Plain(nn.Module):
    def __init__(self, margin: float, size: "int | None" = None, *, mode: Literal["near", "far"], num_classes: int,
                 scale=compute(), table: Table = None, power: Optional[float] = 2):
        pass

class Longer(Plain):
    def __init__(self, *, extra: bool = False, **options):
        super().__init__(**options)

class Sharper(losses.PNELoss):
    pass

class Bare(nn.Module):
    pass

class Stranger(other.Loss):
    pass
"""
PLAIN = {"margin": 1, "mode": "near"}


@pytest.fixture
def own(tmp_path, monkeypatch) -> Callable[..., Any]:
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError")
    (package / "own.py").write_text(SOURCE)
    (package / "broken.py").write_text("class Loss(:")
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda name, options, complete=True: check_own_options(f"own_package.own:{name}", options, complete=complete)
    assert not any(name.startswith("own_package") for name in sys.modules)


def test_keywords_are_read_with_their_types(own):
    known = read_keywords("own_package.own:Plain")
    assert list(known) == ["margin", "size", "mode", "num_classes", "scale", "table", "power"]
    assert known["margin"] == Keyword(float, has_default=False)
    assert known["size"] == Keyword(int | None)
    assert known["mode"] == Keyword(Literal["near", "far"], has_default=False)
    assert (known["scale"].kind, known["table"].kind, known["power"].kind) == (Any, Any, float | None)
    assert set(read_keywords("own_package.own:Longer")) == {*known, "extra"}
    assert list(read_keywords("own_package.own:Sharper")) == list(resolve_options("PNELoss", {}))
    assert read_keywords("own_package.own:Bare") == {}


def test_what_fits_passes(own):
    own("Plain", PLAIN | {"size": 3, "scale": [1, 2], "power": None, "table": "x", "num_classes": 4})
    own("Longer", PLAIN | {"extra": True})
    own("Sharper", {"temperature": 2, "sampling": "raster"})
    own("Plain", {"margin": 1}, complete=False)


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("Plain", {"margin": 1}, "option mode is missing"),
        ("Plain", PLAIN | {"margn": 1}, "margn is no option of own_package.own:Plain; did you mean margin?"),
        ("Plain", PLAIN | {"margin": True}, "option margin must be a finite number; got True"),
        ("Plain", PLAIN | {"margin": float("nan")}, "option margin must be a finite number; got nan"),
        ("Plain", PLAIN | {"size": 1.5}, "option size must be an integer | None; got 1.5"),
        ("Plain", PLAIN | {"mode": "up"}, "option mode must be 'near' | 'far'; got 'up'"),
        ("Longer", PLAIN | {"extra": 1}, "option extra must be True | False; got 1"),
        ("Sharper", {"temperature": 0}, "option temperature must be a finite number >= 1e-06; got 0"),
        ("Bare", {"margin": 1}, "margin is no option of own_package.own:Bare; allowed: (there are none)"),
        ("Stranger", {}, "give Stranger an __init__ that names its options; Loss is not read"),
        ("Plane", {}, "did you mean Plain?"),
    ],
)
def test_what_does_not_fit_is_named(own, name, options, problem):
    with pytest.raises(OptionError, match=re.escape(problem)):
        own(name, options)


@pytest.mark.parametrize("module", ["nowhere", "own_package.nowhere", "own_package.own.deeper", "math"])
def test_a_module_without_source_is_named(own, module):
    with pytest.raises(OptionError, match=f"no module {module}; put {module}.py beside the Snakefile"):
        read_keywords(f"{module}:Loss")


def test_a_broken_module_is_named(own):
    with pytest.raises(OptionError, match=r"broken\.py: no Python module"):
        read_keywords("own_package.broken:Loss")
