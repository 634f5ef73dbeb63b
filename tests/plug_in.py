"""What a user of the installed plug-in does; `test_wheel` runs it in an environment of ``pne[mmseg]`` alone.

    python plug_in.py EXAMPLE FOLDER

Trains the config of the README on made-up images in the layout of Cityscapes, resumes it, trains a step in bfloat16,
and predicts with mmsegmentation's own functions from the checkpoint, with the config and with the stock one.
"""

import ast
import json
import sys
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.runner import Runner, load_checkpoint
from mmseg.apis import MMSegInferencer, inference_model, init_model
from mmseg.registry import MODELS
from PIL import Image

import pne

CROP, SIZE = (64, 64), (80, 96)


def draw(folder: Path) -> None:
    """Write two images with labels for training and one for validation: blocks of one colour a class."""
    random = np.random.default_rng(0)
    colours = random.integers(0, 256, (19, 3))
    for split, count in (("train", 2), ("val", 1)):
        for index in range(count):
            labels = np.kron(random.integers(0, 19, (5, 6)), np.ones((16, 16), int)).astype(np.uint8)
            image = (colours[labels] + random.normal(0, 30, (*SIZE, 3))).clip(0, 255).astype(np.uint8)
            for kind, end, array in (("leftImg8bit", "leftImg8bit", image), ("gtFine", "gtFine_labelTrainIds", labels)):
                path = folder / kind / split / "city" / f"city_{index:06d}_000000_{end}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(path)


def small(path: Path, data: Path) -> Config:
    """Read a config and fit it to one process and little images: the head and the loss stay as they are."""
    config = Config.fromfile(path)
    text = repr(config.to_dict())
    for old, new in {"'SyncBN'": "'BN'", "(512, 1024)": repr(CROP), "(2048, 1024)": repr(SIZE[::-1])}.items():
        text = text.replace(old, new)
    config = Config(ast.literal_eval(text))
    config.model.pretrained = None
    for name in ("train_dataloader", "val_dataloader", "test_dataloader"):
        config[name].dataset.data_root = str(data)
        config[name].update(num_workers=0, persistent_workers=False)
    config.train_cfg.update(max_iters=2, val_interval=2)
    config.default_hooks.checkpoint.interval = 2
    config.default_hooks.logger.interval = 1
    config.work_dir = str(data.parent / "work")
    return config


def logged(work: Path) -> dict[int, float]:
    """Return the contrastive loss by iteration."""
    lines = [
        json.loads(line) for path in work.glob("*/vis_data/scalars.json") for line in path.read_text().splitlines()
    ]
    return {line["step"]: line["decode.loss_contrast"] for line in lines if "decode.loss_contrast" in line}


def main(example: Path, folder: Path) -> None:
    """Do all of it; an assertion fails where something is not as the README says."""
    assert Path(sys.prefix) in Path(pne.__file__).parents, f"not the installed package: {pne.__file__}"
    draw(folder / "data")
    config = small(example, folder / "data")
    Runner.from_cfg(config).train()
    config.update(resume=True)
    config.train_cfg.max_iters = 4
    runner = Runner.from_cfg(config)
    runner.train()
    losses = logged(Path(config.work_dir))
    assert sorted(losses) == [1, 2, 3, 4], losses
    assert all(0 <= loss < np.inf for loss in losses.values()), losses
    assert max(losses.values()) > 0, losses

    model, dataset = runner.model, runner.train_dataloader.dataset
    batch = model.data_preprocessor(pseudo_collate([dataset[0], dataset[1]]), True)
    with torch.autocast(next(model.parameters()).device.type, torch.bfloat16):
        terms = model.train().loss(batch["inputs"], batch["data_samples"])
    terms["decode.loss_contrast"].backward()
    gradients = [p.grad for n, p in model.named_parameters() if "contrast.projection" in n]
    assert terms["decode.loss_contrast"].dtype == torch.float32
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)

    written, weights = folder / "config.py", str(Path(config.work_dir) / "iter_4.pth")
    config.dump(written)
    image = str(next((folder / "data/leftImg8bit/val").rglob("*.png")))
    by_model = (
        inference_model(init_model(str(written), weights, device="cpu"), image).pred_sem_seg.data[0].cpu().numpy()
    )
    by_inferencer = MMSegInferencer(str(written), weights, dataset_name="cityscapes", device="cpu")(image)[
        "predictions"
    ]
    assert by_model.shape == SIZE
    assert np.array_equal(by_model, by_inferencer)

    stock = small(example, folder / "data").model
    stock.decode_head.pop("contrast")
    stock.decode_head.type = stock.decode_head.pop("base")
    plain = MODELS.build(stock)
    state = torch.load(weights, map_location="cpu", weights_only=False)["state_dict"]
    left_over = set(state) - set(plain.state_dict())
    assert left_over == {name for name in state if ".contrast." in name} != set()
    load_checkpoint(plain, weights, map_location="cpu")
    print("as the README says")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
