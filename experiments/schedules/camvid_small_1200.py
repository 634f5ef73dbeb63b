"""CamVid at 360x270: 1200 iterations of 8 images, AdamW and poly, the pretrained backbone at half the rate."""

optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=2e-3, weight_decay=0.01),
    paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=0.5))),
)
param_scheduler = [dict(type="PolyLR", eta_min=0.0, power=0.9, by_epoch=False)]
train_cfg = dict(max_iters=1200)
train_dataloader = dict(batch_size=8)
numerics = dict(channels_last=True)
