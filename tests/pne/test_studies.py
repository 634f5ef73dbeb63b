"""Rows of the studies that no other table has train; a branch with weight 0 leaves the plain model as it is."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_runs import final_state, history_of, scored, trained

from pne.spec import load_track, write_spec
from pne.train import main


@pytest.fixture
def train(repository: Path, street: Path, tmp_path: Path) -> Callable[..., list[Path]]:
    """Return a function that trains rows of quick, named as ``table.row``, and returns their specs."""

    def run(iterations: int, *places: str) -> list[Path]:
        options = {
            "data_root": street.parent,
            "results": tmp_path,
            "iterations": iterations,
            "limit": 8,
            "studies": True,
        }
        track = load_track("quick", experiments=repository / "experiments", **options)
        names = [track.tables[table].rows[row].runs[0] for table, row in (place.split(".") for place in places)]
        specs = [write_spec(track.runs[name], track.config(name)) for name in names]
        assert main([str(spec) for spec in specs]) == 0
        return specs

    return run


def test_a_branch_with_weight_0_is_cross_entropy_bit_by_bit(train: Callable) -> None:
    specs = train(10, "controls.base", "controls.weight_0", "controls.pne")
    base, weightless, contrast = map(final_state, specs)
    assert all(torch.equal(value, weightless[name]) for name, value in base.items())
    assert not all(torch.equal(value, contrast[name]) for name, value in base.items())
    assert scored(specs[0]).class_iou == scored(specs[1]).class_iou
    assert trained(specs[1]).contrast.final_statistics["gradient_norm"] > 0


def test_unusual_rows_train(train: Callable) -> None:
    names = {"ohem": "kept_share", "focal": "loss_focal", "lovasz": "loss_lovasz", "dice": "loss_dice"}
    ohem, *others, _ = train(2, *(f"losses.{row}" for row in names), "losses.cipc_released")
    for spec, name in zip((ohem, *others), names.values(), strict=True):
        [line] = history_of(spec)
        assert line[f"decode.{name}"] > 0
    [line] = history_of(ohem)
    assert 0.2 <= line["decode.kept_share"] <= 1
    assert line["loss"] == pytest.approx(line["decode.loss_ce"] + line["aux.loss_ce"])
