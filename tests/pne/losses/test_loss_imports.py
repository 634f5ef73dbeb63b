"""The losses need torch alone."""

import subprocess
import sys


def test_losses_load_torch_alone():
    code = (
        "import sys, torch, torch.utils.checkpoint; before = set(sys.modules); "
        "import pne.losses, pne.losses.functional; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert set(loaded) <= {"pne", "difflib"}, loaded
