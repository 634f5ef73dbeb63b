"""CamVid at 360x270: half of the usual length, to choose settings."""

_base_ = "camvid_small_1200.py"
train_cfg = dict(max_iters=600)
