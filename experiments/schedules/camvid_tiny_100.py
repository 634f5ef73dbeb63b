"""CamVid at 240x180: 100 iterations of 4 images (17 passes over the 24), at a rate for random initial weights."""

_base_ = "street_100.py"
train_dataloader = dict(batch_size=4)
