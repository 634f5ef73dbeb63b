"""CamVid: 4000 iterations of 16 images (174 passes over the 367 images), SGD and poly as the paper's schedules."""

stock = "_base_/schedules/schedule_40k.py"
param_scheduler = [dict(type="PolyLR", eta_min=1e-4, power=0.9, begin=0, end=4000, by_epoch=False)]
train_cfg = dict(max_iters=4000)
train_dataloader = dict(batch_size=16)
