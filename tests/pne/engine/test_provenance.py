"""What a result says of where it comes from."""

import torch

from pne.engine.provenance import Code, describe, running_code


def test_provenance_names_versions_and_device() -> None:
    found = describe(
        device=torch.device("cpu"),
        world_size=1,
        micro_batch=4,
        dataset_fingerprint="f",
        seed=3,
        started="2024-01-01T00:00:00+00:00",
    )
    assert found.versions["torch"] == torch.__version__
    assert set(found.versions) == {"python", "torch", "mmengine", "mmcv", "mmseg", "numpy"}
    assert found.device.startswith("cpu: ")
    assert found.ended.endswith("+00:00")
    assert (found.code_sha256, found.git_commit) == (running_code().sha256, running_code().git_commit)


def test_provenance_names_the_code_that_it_is_given() -> None:
    code = Code("a" * 64, "commit", True)
    found = describe(
        device=torch.device("cpu"),
        world_size=1,
        micro_batch=1,
        dataset_fingerprint="f",
        seed=0,
        started="2024-01-01T00:00:00+00:00",
        code=code,
    )
    assert (found.code_sha256, found.git_commit, found.git_dirty) == ("a" * 64, "commit", True)
