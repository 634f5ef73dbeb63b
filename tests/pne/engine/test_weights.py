"""Files of initial weights are told before training when missing, broken or of another network, and loaded if not."""

import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from mmengine.registry import init_default_scope
from mmseg.registry import MODELS
from tiny_runs import draw_images, final_state, model_config, write_run

from pne.engine.weights import address_of, check_initial_weights, filled_parameters
from pne.errors import UserError
from pne.spec.stock import problem_of
from pne.train import main

BACKBONE = model_config(None)["backbone"]
SWIN = {"type": "SwinTransformer", "embed_dims": 8, "depths": (1, 1), "num_heads": (1, 1), "out_indices": (0, 1)}
PAGE = b"<!DOCTYPE html><html><body>Sign in to go on</body></html>"


@pytest.fixture(autouse=True)
def _mmseg() -> None:
    init_default_scope("mmseg")


def pretrained(source: Path | str, backbone: dict = BACKBONE) -> dict:
    return {**backbone, "init_cfg": {"type": "Pretrained", "checkpoint": str(source)}}


def save(path: Path, backbone: dict = BACKBONE, **options: object) -> dict[str, torch.Tensor]:
    """Write the state of a backbone as it was built at random."""
    state = MODELS.build(backbone).state_dict()
    torch.save(state, path, **options)
    return state


def refusal(message: str, source: Path | str, backbone: dict = BACKBONE) -> None:
    with pytest.raises(UserError, match=message):
        check_initial_weights({"backbone": pretrained(source, backbone)})


def test_weights_that_are_not_there_are_told(tmp_path: Path) -> None:
    name = "resnet101_v1c-e67eebb6.pth"
    refusal(
        rf"{name}: no such file of initial weights; download the file from https://\S+/{name} .*weights_dir",
        tmp_path / name,
    )
    refusal(r"http://127.0.0.1:9/resnet.pth: cannot be fetched .*weights_dir", "http://127.0.0.1:9/resnet.pth")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (PAGE, "no file of PyTorch weights: it begins with b'<!DOCTYPE html>"),
        (b"version https://git-lfs.github.com/spec/v1", "no file of PyTorch weights: it begins with b'version"),
        (b"PK\x03\x04 and nothing of a zip archive", r"cannot be loaded \("),
        (b"\x80\x02 and nothing of a pickle", r"cannot be loaded \("),
    ],
)
def test_what_is_no_file_of_weights_is_one_clear_error(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "resnet101_v1c-e67eebb6.pth"
    path.write_bytes(content)
    refusal(rf"{path}: {problem}.*; download the file from https://\S+ into this folder", path)


def test_files_cut_short_or_without_weights_are_told(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    save(path)
    path.write_bytes(path.read_bytes()[:-1000])
    refusal(r"weights.pth: cannot be loaded \(.*\); download the file into this folder", path)
    for content in ([1, 2], torch.zeros(3), {"epoch": 3}, {"state_dict": {}}):
        torch.save(content, path)
        refusal("holds no weights", path)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    total = sum(parameter.numel() for parameter in MODELS.build(BACKBONE).parameters())
    torch.save({"classifier.weight": torch.zeros(3), "classifier.bias": torch.zeros(3)}, path)
    refusal(rf"fills 0 of {total} parameters of the backbone ResNetV1c", path)
    save(path, {**BACKBONE, "base_channels": 16})  # every name is known, hardly any shape
    refusal(rf"fills \d+ of {total} parameters", path)
    save(path)
    message = r"fills \d+ of \d+ parameters of the backbone ResNetV1c, the others would"
    refusal(message, path, {**BACKBONE, "depth": 34})
    save(path, SWIN)
    refusal(r"does not fit the backbone SwinTransformer \(RuntimeError: ", path, {**SWIN, "embed_dims": 16})


def test_weights_of_the_network_are_loaded_and_change_it(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    state = save(path)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    check_initial_weights({"backbone": pretrained(path)})
    assert torch.equal(torch.rand(2), expected)  # the check draws nothing
    filled, total = filled_parameters(pretrained(path))
    assert filled == total
    torch.manual_seed(1)
    backbone = MODELS.build(pretrained(path))
    assert not torch.equal(backbone.state_dict()["layer1.0.conv1.weight"], state["layer1.0.conv1.weight"])
    backbone.init_weights()
    torch.testing.assert_close(backbone.state_dict(), state)


@pytest.mark.parametrize("wrap", ["state_dict", None])
def test_the_forms_that_files_come_in(tmp_path: Path, wrap: str | None) -> None:
    path = tmp_path / "weights.pth"
    state = save(path, _use_new_zipfile_serialization=wrap is not None)
    if wrap:
        state = {**state, "fc.weight": torch.zeros(5, 64)}  # the classifier of ImageNet is left over
        torch.save({wrap: state, "meta": {"epoch": 100}}, path)
    check_initial_weights({"backbone": pretrained(path)})
    check_initial_weights({"pretrained": str(path), "backbone": BACKBONE})


def test_a_backbone_that_reads_files_in_its_own_way(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    state = MODELS.build(SWIN).state_dict()
    torch.save({"model": {f"backbone.{name}": value for name, value in state.items() if name[:4] != "norm"}}, path)
    check_initial_weights({"backbone": pretrained(path, SWIN)})
    filled, total = filled_parameters(pretrained(path, SWIN))
    assert total - filled == 2 * (8 + 16)  # scale and shift of the norms of two outputs, which ImageNet does not train


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """Address and folder of a server on this machine; downloads are kept in ``tmp_path / hub``."""
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "site"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


def test_what_a_server_sends_is_checked_as_well(site: tuple[str, Path], tmp_path: Path) -> None:
    address, folder = site
    save(folder / "good.pth")
    check_initial_weights({"backbone": pretrained(f"{address}/good.pth")})
    assert (tmp_path / "hub/checkpoints/good.pth").is_file()
    (folder / "page.pth").write_bytes(PAGE)
    kept = tmp_path / "hub/checkpoints/page.pth"
    for _ in range(2):  # fetched, then as it was kept
        message = rf"{address}/page.pth: no file of PyTorch weights: .*; delete {kept}, where it was kept"
        refusal(message, f"{address}/page.pth")
    refusal(r"none.pth: cannot be fetched .*404", f"{address}/none.pth")


def test_a_training_starts_from_them_or_not_at_all(tmp_path: Path, error_of: Callable) -> None:
    path, data = tmp_path / "weights.pth", draw_images(tmp_path / "camvid", test=1)
    change = {"model.backbone": pretrained(path), "optim_wrapper.optimizer.lr": 0.0}
    spec = write_run(tmp_path, data, iterations=1, change=change)
    path.write_bytes(PAGE)
    assert f"error: {path}: no file of PyTorch weights" in error_of(main, spec)
    state = save(path)
    assert main([str(spec)]) == 0
    for name in ("stem.0.weight", "layer4.1.conv2.weight"):
        torch.testing.assert_close(final_state(spec)[f"backbone.{name}"], state[name])


def test_addresses_are_those_of_the_shipped_configs() -> None:
    for name in ("hrnetv2_w48-d2186c55.pth", "swin_base_patch4_window7_224_20220317-e9b98025.pth"):
        assert re.fullmatch(f"https://.*/{name}", address_of(name))
    assert address_of("resnet18-nowhere.pth") is None


def test_the_first_look_needs_the_first_bytes_alone(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    assert problem_of(path) == "no such file"
    for new in (True, False):
        torch.save({"a": torch.zeros(1)}, path, _use_new_zipfile_serialization=new)
        assert problem_of(path) is None
