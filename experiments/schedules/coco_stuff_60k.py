"""The paper's COCO-Stuff schedule: 60k iterations, learning rate 0.001, 16 images; else the stock schedule."""

stock = "_base_/schedules/schedule_40k.py"
optim_wrapper = dict(optimizer=dict(lr=0.001))
param_scheduler = [dict(type="PolyLR", eta_min=1e-4, power=0.9, begin=0, end=60000, by_epoch=False)]
train_cfg = dict(max_iters=60000)
train_dataloader = dict(batch_size=16)
