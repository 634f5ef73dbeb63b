"""The options load no torch, the losses nothing but torch."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "mmengine", "mmcv", "mmseg", "numpy", "pandas", "pydantic", "matplotlib")


def loaded_by(statement):
    code = f"import sys; {statement}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_options_load_no_torch():
    assert not loaded_by("import pne, pne.options") & set(HEAVY)


def test_losses_load_torch_alone():
    own = loaded_by("import pne.losses, pne.losses.functional") - loaded_by("import torch, torch.utils.checkpoint")
    assert own <= {"pne", "__mp_main__", "difflib"}, own
