"""SyntheticStreet: 100 iterations of 8 images, SGD and poly as the paper's, at a rate for random initial weights."""

stock = "_base_/schedules/schedule_40k.py"
optim_wrapper = dict(optimizer=dict(lr=0.05))
param_scheduler = [dict(type="PolyLR", eta_min=1e-4, power=0.9, begin=0, end=100, by_epoch=False)]
train_cfg = dict(max_iters=100)
train_dataloader = dict(batch_size=8)
