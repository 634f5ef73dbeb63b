"""The worked examples of docs/extending.md do what the page says."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from mmseg.registry import DATASETS
from PIL import Image
from tiny_runs import draw_images, scored, trained

from pne.datasets import layouts, registered
from pne.datasets.doctor import check
from pne.engine.trial import find_mistakes
from pne.errors import UserError
from pne.spec import write_spec
from pne.spec.catalogue import read_catalogue
from pne.train import main as train


@pytest.fixture
def blocks(repository: Path) -> dict[str, str]:
    """The blocks of the page: what they are and their file -> text."""
    page = (repository / "docs/extending.md").read_text(encoding="utf-8")
    found = re.findall(r"```\w+\n# (\w+: \S+)\n(.*?)```", page, re.DOTALL)
    assert len(found) == page.count("```") / 2 > 8, "every block names its file"
    return dict(found)


@pytest.fixture
def written(blocks, declarations, tmp_path, monkeypatch):
    """The page followed to its end, in a folder of its own; the data are drawn."""
    monkeypatch.setattr(layouts, "LAYOUTS", layouts.LAYOUTS)
    for name, text in blocks.items():
        kind, _, file = name.partition(": ")
        if kind == "file":
            (tmp_path / file).write_text(text, encoding="utf-8")
        elif kind == "row":
            table = yaml.safe_load((tmp_path / file).read_text(encoding="utf-8"))
            table["rows"] |= yaml.safe_load(text)
            (tmp_path / file).write_text(yaml.safe_dump(table, sort_keys=False), encoding="utf-8")
        else:
            assert (kind, file) == ("append", "pne/datasets/layouts.yaml")
            ((key, facts),) = yaml.safe_load(text).items()
            layouts.LAYOUTS[key] = layouts.read_layout(key, facts)
            registered.register_layouts()
    monkeypatch.syspath_prepend(tmp_path)
    for path in (draw_images(tmp_path / "data/shapes") / "ann_dir").glob("*/*.png"):
        labels = np.array(Image.open(path))
        Image.fromarray(np.where(labels == 255, 255, labels % 5).astype(np.uint8)).save(path)
    yield declarations
    layouts.LAYOUTS.pop("shapes")
    DATASETS.module_dict.pop("ShapesDataset")
    del registered.ShapesDataset
    sys.modules.pop("own_losses", None)


def test_the_page_followed_gives_runs_that_train(written, tmp_path):
    track = written.load("shapes", data_root=tmp_path / "data", results=tmp_path / "results")
    assert "own_losses" not in sys.modules, "resolving reads the loss and runs nothing of it"
    rows = {(table.key, row.key): row.runs for table in track.tables.values() for row in table.rows.values()}
    assert rows["samples", "few"].keys() == {0}
    assert rows["samples", "usual"][0] == rows["positive_weights", "softmax"][0], "shared with the paper's table"
    assert "-pne-num_samples10-lr0.02-" in rows["positive_weights", "few_samples"][0]
    own, steep = (track.runs[rows["own_loss", row][0]] for row in ("own", "steep"))
    assert (own.contrast["options"], steep.contrast["options"]) == ({"power": 2.0}, {"power": 3.0})
    assert own.config_sha256 != steep.config_sha256
    assert check("shapes", tmp_path / "data/shapes").errors == []
    spec = write_spec(own, track.config(own.run))
    assert train([str(spec)]) == 0
    assert 0 < trained(spec).losses["loss_contrast"] < 2
    assert set(scored(spec).class_iou) == {"ground", "disc", "square", "star", "cross"}


def test_what_the_page_adds_can_be_built(written, tmp_path):
    table = yaml.safe_load(written.text("tables/samples.yaml"))
    written.write("tables/fcn.yaml", yaml.safe_dump(table | {"table": "fcn", "model": "fcn"}))
    catalogue = read_catalogue(written.folder)
    track = written.load("shapes", catalogue=catalogue, tables=["fcn", "own_loss"])
    assert find_mistakes(track, catalogue) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("contrast/class_similarity.yaml", "power: 2.0", "pover: 2.0", "options.pover is no option of own_losses:C"),
        ("contrast/class_similarity.yaml", "power: 2.0", "power: two", "options.power: must be a finite number; got"),
        ("contrast/class_similarity.yaml", "power: 2.0", "power: [2]", r"must be a finite number; got \[2\]"),
        ("contrast/class_similarity.yaml", "own_losses:", "our_losses:", "no module our_losses; put our_losses.py"),
        ("contrast/class_similarity.yaml", "ClassSimilarityLoss", "SimilarityLoss", "did you mean ClassSimilarityLoss"),
        ("contrast/class_similarity.yaml", "weight:", "preset: paper\nweight:", "preset: paper is no preset of own_lo"),
        ("tables/own_loss.yaml", "power: 3.0", "powr: 3.0", "rows.steep: contrast.powr is no option of own_losses"),
        ("../own_losses.py", "power: float = 1.0", "power: float = 1.0, size: int", "contrast.size: missing"),
        ("../own_losses.py", "import torch\n", "import torch\n)", "no Python module"),
    ],
)
def test_a_mistake_in_a_loss_of_ones_own_is_named_before_anything_runs(written, file, old, new, message):
    written.replace(file, old, new)
    with pytest.raises(UserError, match=message):
        written.load("quick")


def test_a_class_that_is_no_contrast_loss_is_named_by_the_trial(written):
    written.replace("../own_losses.py", "logits, labels, ignore_index", "scores, labels, ignore_index")
    catalogue = read_catalogue(written.folder)
    lines = "\n".join(find_mistakes(written.load("quick", catalogue=catalogue, tables=["own_loss"]), catalogue))
    assert "rows.own: contrast.loss: ClassSimilarityLoss is no" in lines
