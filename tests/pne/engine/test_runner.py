"""A run's config adapted to the machine; where the size of a forward pass may be set."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from mmengine.structures import PixelData
from mmseg.models import SegDataPreProcessor
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample
from tiny_runs import CONTRAST, SETTLED, final_state, history_of, model_config, signalled_at, trained, write_run
from torch.utils._python_dispatch import TorchDispatchMode

from pne.engine.processes import Processes, choose_device
from pne.engine.runner import (
    Bfloat16OptimWrapper,
    PreProcessor,
    ResumableTrainLoop,
    TrainingRunner,
    micro_batches,
    per_process_batch,
    plain_model,
    prepare,
    register,
    set_precision,
    split,
)
from pne.errors import UserError
from pne.spec import Run, load_track
from pne.spec.catalogue import read_catalogue
from pne.spec.identity import NUMERICS
from pne.train import main
from workflows.configuration import read_configuration, spec_options

PRETRAINED = {"type": "Pretrained", "checkpoint": "https://example.org/resnet.pth"}


def config(**changes: object) -> dict:
    head = {"type": "ContrastHead", "base": "FCNHead", "contrast": {"start": 10, "weight": 1.0}, "channels": 4}
    return {
        "model": {"backbone": {"type": "ResNet", "init_cfg": PRETRAINED}, "decode_head": [{"type": "FCNHead"}, head]},
        "train_cfg": {"type": "IterBasedTrainLoop", "max_iters": 20},
        "optim_wrapper": {"type": "OptimWrapper", "optimizer": {"type": "SGD", "lr": 0.1}},
        "train_dataloader": {"batch_size": 8},
        "test_dataloader": {"batch_size": 1},
        **changes,
    }


def prepared(config: dict, **changes: object) -> dict:
    about = {"seed": 3, "iterations": 20, "precision": "fp32", "batch_size": 8, **changes}
    return prepare(Run.model_construct(**about), config, per_process=4, parts=2, workers=1)


def test_the_global_batch_is_kept_or_refused_with_what_can_be_split() -> None:
    for (batch, world), expected in {(8, 1): 8, (8, 4): 2, (3, 3): 1}.items():
        assert per_process_batch(batch, world) == expected
    for limit, parts in {None: 1, 6: 1, 100: 1, 3: 2, 1: 6}.items():
        assert micro_batches(6, limit) == parts
    with pytest.raises(UserError, match="8 images cannot be split evenly over 3 processes; use one of 1, 2, 4, 8"):
        per_process_batch(8, 3)
    with pytest.raises(
        UserError, match="6 images of a process cannot be split into parts of 4 images; use one of 1, 2, 3, 6"
    ):
        micro_batches(6, 4)


def test_parts_hold_every_image_once_in_order() -> None:
    parts = split({"inputs": [0, 1, 2, 3], "data_samples": list("abcd")}, 2)
    assert parts == [{"inputs": [0, 1], "data_samples": ["a", "b"]}, {"inputs": [2, 3], "data_samples": ["c", "d"]}]


def test_the_runner_gets_batch_parts_and_a_resumable_loop() -> None:
    original = config()
    found = prepared(original)
    assert found["train_dataloader"]["batch_size"] == 4
    assert found["train_cfg"] == {"type": ResumableTrainLoop, "max_iters": 20, "parts": 2}
    assert found["optim_wrapper"]["accumulative_counts"] == 2
    assert found["model"]["decode_head"][1]["contrast"]["start"] == 20  # in forward passes
    assert (found["numerics"], found["env_cfg"]) == (NUMERICS, {"cudnn_benchmark": True})
    assert original == config()


def test_bfloat16_replaces_the_scaled_wrapper() -> None:
    amp = {"type": "AmpOptimWrapper", "dtype": "bfloat16", "loss_scale": "dynamic", "clip_grad": {"max_norm": 1.0}}
    half = prepared(config(optim_wrapper=amp), precision="bf16")["optim_wrapper"]
    assert half == {"type": Bfloat16OptimWrapper, "clip_grad": {"max_norm": 1.0}, "accumulative_counts": 2}


def test_another_number_of_iterations_is_refused() -> None:
    with pytest.raises(UserError, match=r"train_cfg.max_iters is 20, but the spec says 30"):
        prepared(config(), iterations=30)


def test_the_plain_model_has_no_branch_and_fetches_nothing() -> None:
    register({})
    plain = plain_model(config()["model"])
    assert plain["decode_head"][1] == {"type": "FCNHead", "channels": 4}
    assert plain["backbone"]["init_cfg"] is None
    assert MODELS.get("FCNHead") is not None


def test_the_parts_name_no_run_and_may_be_the_track_s(repository: Path) -> None:
    catalogue = read_catalogue(repository / "experiments")
    track = catalogue.tracks["quick"].model_copy(update={"micro_batch": 4})
    other = {"catalogue": replace(catalogue, tracks={**catalogue.tracks, "quick": track})}
    for options, expected in (({}, None), ({"runtime": {"micro_batch": 2}}, 2), (other, 4)):
        runs = load_track("quick", experiments=repository / "experiments", **options).runs
        assert {run.runtime.micro_batch for run in runs.values()} == {expected}
        assert list(runs) == list(load_track("quick", experiments=repository / "experiments").runs)


def test_the_workflow_passes_them_to_the_description_and_refuses_nonsense() -> None:
    configuration = read_configuration({"micro_batch": 2})
    assert configuration.track_arguments["runtime"] == {"micro_batch": 2}
    assert spec_options(configuration).endswith("--runtime micro_batch=2")
    with pytest.raises(UserError, match="--config micro_batch: Input should be greater"):
        read_configuration({"micro_batch": 0})


def test_a_resumed_run_may_be_cut_anew_and_keeps_the_start_of_its_contrast(tmp_path: Path, data: Path) -> None:
    settings = {"contrast": CONTRAST | {"start": 10}, "log_interval": 1, "checkpoint_interval": 1}
    spec = write_run(tmp_path, data, batch_size=4, iterations=40, **settings)
    assert signalled_at(spec, signal.SIGTERM, 12)[0] == 75
    assert main(["--micro-batch", "1", str(spec)]) == 0
    lines = history_of(spec)
    assert len(lines) == 40
    active = [line["iter"] for line in lines if line["loss_contrast"] > 0]
    assert min(active) > 10
    # 12 passes are not yet 4 times the start: a term that counted them would sleep again until iteration 19.
    assert sum(iteration in range(13, 20) for iteration in active) >= 5
    assert final_state(spec)["decode_head.contrast.calls"] == 160


def test_parts_of_the_spec_or_of_the_command_line_make_the_same_step(tmp_path: Path, data: Path) -> None:
    found = []
    for size, settings, arguments in ((4, {}, []), (2, {"micro_batch": 2}, []), (1, {"micro_batch": 2}, [1])):
        spec = write_run(tmp_path / str(size), data, batch_size=4, iterations=4, change=SETTLED, **settings)
        assert main([*(f"--micro-batch={number}" for number in arguments), str(spec)]) == 0
        assert trained(spec).provenance.micro_batch == size
        found.append(final_state(spec))
    for parts in found[1:]:
        torch.testing.assert_close(parts, found[0], rtol=1e-3, atol=1e-5)


class Drawn(torch.nn.Module):
    """Notes where its weights were drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3)
        self.drawn_on: list[str] = []

    def init_weights(self) -> None:
        self.drawn_on.append(self.convolution.weight.device.type)


@pytest.mark.parametrize("channels_last", [False, True])
def test_weights_are_drawn_on_the_cpu_whatever_the_device(channels_last: bool) -> None:
    runner = TrainingRunner.__new__(TrainingRunner)
    runner.processes, runner._channels_last = Processes(0, 1, torch.device("meta")), channels_last
    runner.model = runner.wrap_model(None, Drawn())
    runner._init_model_weights()
    assert runner.model.drawn_on == ["cpu"]
    weight = runner.model.convolution.weight
    assert weight.device.type == "meta"
    assert weight.is_contiguous(memory_format=torch.channels_last) == channels_last


def test_a_config_says_how_to_compute_and_the_rest_is_as_ever() -> None:
    found = prepared(config(numerics={"cudnn_benchmark": False, "tf32_products": True}))
    assert found["numerics"] == NUMERICS | {"cudnn_benchmark": False, "tf32_products": True}
    assert found["env_cfg"]["cudnn_benchmark"] is False


def test_precision_is_set_as_the_config_says() -> None:
    try:
        set_precision({"tf32_products": True, "tf32_convolutions": False})
        assert torch.get_float32_matmul_precision() == "high"
        assert not torch.backends.cudnn.allow_tf32
    finally:
        set_precision(NUMERICS)
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.backends.cudnn.allow_tf32


class Calls(TorchDispatchMode):
    """Notes the operations inside the block, and which copies to another device wait."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.waits: list[bool] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.names.append(str(function))
        if str(function) == "aten._to_copy.default" and "device" in kwargs and args[0].device != kwargs["device"]:
            self.waits.append(not kwargs.get("non_blocking"))
        return function(*args, **kwargs)


def preprocessors() -> tuple[SegDataPreProcessor, SegDataPreProcessor]:
    """One of mmsegmentation, and one that works in our way."""
    stock, quick = (MODELS.build(model_config(None)["data_preprocessor"]) for _ in range(2))
    PreProcessor.take_over(quick)
    return stock, quick


def batch() -> dict:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randint(0, 256, (3, 30, 40), generator=generator, dtype=torch.uint8) for _ in range(2)]
    labels = [torch.randint(0, 11, (1, 30, 40), generator=generator) for _ in inputs]
    return {"inputs": inputs, "data_samples": [SegDataSample(gt_sem_seg=PixelData(data=one)) for one in labels]}


def test_batches_are_prepared_as_ever() -> None:
    register({})
    expected, found = (preprocessor(batch(), True) for preprocessor in preprocessors())
    assert torch.equal(found["inputs"], expected["inputs"])
    assert found["inputs"].stride() == expected["inputs"].stride()
    for one, other in zip(found["data_samples"], expected["data_samples"], strict=True):
        assert torch.equal(one.gt_sem_seg.data, other.gt_sem_seg.data)
        assert one.metainfo == other.metainfo


def test_no_batch_waits_for_the_device() -> None:
    """A copy that waits, and an index made of a list, which is copied so, each wait for all work before them."""
    register({})
    stock, quick = (preprocessor.to("meta") for preprocessor in preprocessors())
    with Calls() as usual:
        stock(batch(), True)
    with Calls() as calls:
        quick(batch(), True)
    assert (usual.waits[:4], "aten.index.Tensor" in usual.names) == ([True] * 4, True)
    assert (calls.waits, "aten.index.Tensor" in calls.names) == ([False] * 4, False)


def test_long_tracks_ask_for_a_gpu_and_say_so_where_there_is_none(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for track in ("paper", "camvid", "camvid_short"):
        runs = load_track(track, experiments=repository / "experiments").runs
        assert {run.runtime.device for run in runs.values()} == {"cuda"}
    with pytest.raises(UserError, match=r"sees no CUDA device; run where there is a GPU .*--config device=cpu"):
        choose_device("cuda")
    assert choose_device("auto").type == "cpu"
