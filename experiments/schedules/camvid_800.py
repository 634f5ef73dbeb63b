"""CamVid: 800 iterations of 16 images (35 passes over the 367 images), otherwise as the 4000 of track camvid."""

_base_ = "camvid_4k.py"
param_scheduler = [dict(type="PolyLR", eta_min=1e-4, power=0.9, begin=0, end=800, by_epoch=False)]
train_cfg = dict(max_iters=800)
