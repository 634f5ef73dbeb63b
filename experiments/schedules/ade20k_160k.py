"""The paper's ADE20K schedule: mmsegmentation's 160k iterations of SGD, 0.01, poly, with 16 images."""

stock = "_base_/schedules/schedule_160k.py"
train_dataloader = dict(batch_size=16)
