"""A rehearsal scores the test images that need most memory."""

from pathlib import Path

import numpy as np
import pytest
from mmengine.registry import init_default_scope
from PIL import Image
from tiny_runs import draw_images, run_config, write_run

from pne.datasets.pictures import read_image
from pne.engine import scoring
from pne.engine.data import build_dataset
from pne.engine.registration import register
from pne.errors import UserError
from pne.rehearsal import perform
from pne.rehearsal.__main__ import main
from pne.rehearsal.largest import largest_images, restricted
from pne.rehearsal.record import RECORD, REQUEST, Rehearsal, Request, read_content, write_content

SIZES = [(40, 60), (44, 60), (60, 44), (20, 20), (48, 64), (44, 60)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = draw_images(tmp_path / "camvid", train=2, test=len(SIZES))
    for number, size in enumerate(SIZES):
        Image.fromarray(np.zeros((*size, 3), np.uint8)).save(root / f"img_dir/test/{number:03d}.jpg")
        Image.fromarray(np.zeros(size, np.uint8)).save(root / f"ann_dir/test/{number:03d}.png")
    return root


def scored_config(data: Path, **changes: object) -> dict:
    init_default_scope("mmseg")
    config = run_config(data, iterations=1)
    register(config)
    return {**config["test_dataloader"]["dataset"], **changes}


@pytest.mark.parametrize(
    ("number", "expected"), [(1, [4]), (2, [1, 4]), (3, [1, 2, 4]), (4, [1, 2, 4, 5]), (9, [0, 1, 2, 3, 4, 5])]
)
def test_the_largest_are_taken_and_of_equal_ones_the_earlier(data: Path, number: int, expected: list[int]) -> None:
    assert largest_images(scored_config(data), number) == expected


def test_headers_are_read_and_no_image_is_decoded(data: Path) -> None:
    path = data / "img_dir/test/004.jpg"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError):
        read_image(path)
    assert largest_images(scored_config(data, cache_data=True), 1) == [4]
    path.write_text("no picture")
    with pytest.raises(UserError, match=r"004\.jpg: cannot be read as an image"):
        largest_images(scored_config(data), 1)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(("indices", "expected"), [(None, "14"), (3, "12"), ([5, 3, 2, 0], "25")])
def test_the_data_set_then_holds_these_alone(data: Path, wrapped: bool, indices: object, expected: str) -> None:
    config = scored_config(data, **({} if indices is None else {"indices": indices}))
    config = {"type": "PositionSeeded", "dataset": config} if wrapped else config
    kept = restricted(config, largest_images(config, 2))
    dataset = build_dataset(kept["dataset"] if wrapped else kept)
    names = [Path(dataset.get_data_info(index)["img_path"]).stem for index in range(len(dataset))]
    assert sorted(names) == [f"00{number}" for number in expected]


def test_a_rehearsal_scores_them(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write_run(tmp_path, data, iterations=1, evaluations=("single_scale", "multi_scale_flip"))
    write_content(
        spec.parent / REQUEST,
        Request(
            runs=["tiny"], config_sha256="0", evaluations=["single_scale", "multi_scale_flip"], images=2, device="cpu",
            gpus=1, workers=0, threads=1, initial_weights="random", reduced=False,
        ),
    )  # fmt: skip
    scored = []

    def spy(*arguments: object, **options: object) -> scoring.Score:
        score = scoring.evaluate(*arguments, **options)
        scored.append(score.confusion.names)
        return score

    monkeypatch.setattr(perform, "evaluate", spy)
    assert main([str(spec)]) == 0
    assert scored == [("001", "004")] * 2
    costs = read_content(spec.parent / RECORD, Rehearsal).evaluations
    assert {name: cost.images for name, cost in costs.items()} == {"single_scale": 2, "multi_scale_flip": 2}
