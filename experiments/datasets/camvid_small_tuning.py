"""CamVid at 360x270 to choose settings on: trained without the clip 0001TP of the training split, scored on it.

Its 62 frames, taken at dusk, come first in the order of file names. Neither val nor test is read.
"""

_base_ = "camvid_small.py"
train_dataloader = dict(dataset=dict(indices=-305))
val_dataloader = dict(
    dataset=dict(data_prefix=dict(img_path="img_dir/train", seg_map_path="ann_dir/train"), indices=62)
)
