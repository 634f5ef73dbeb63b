"""Real data is examined before anything trains on it."""

from pathlib import Path

from checkout import Checkout


def test_incomplete_data_is_told_before_anything_trains(checkout: Checkout, shared: Path) -> None:
    (checkout / "real").mkdir()
    (checkout / "real/camvid").symlink_to(shared / "data/camvid_tiny")
    output = checkout.snakemake(
        "--cores", "2", "table_positive_weights", "--config", "track=camvid", "data_root=real", accept=(1,)
    )
    assert "expected 367 images in img_dir/train, found 24" in output
    assert "train cityscapes" not in output
