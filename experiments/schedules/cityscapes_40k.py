"""The paper's Cityscapes schedule: mmsegmentation's 40k iterations of SGD, 0.01, poly, with 8 images.

The paper writes the poly factor without its exponent; power 0.9 and the floor of 1e-4 are the stock schedule's, which
the authors' released config uses.
"""

stock = "_base_/schedules/schedule_40k.py"
train_dataloader = dict(batch_size=8)
