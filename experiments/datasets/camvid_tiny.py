"""CamVid at 240x180, 24 images to train on at 120x160 and 8 of its val split to test on: there is no test split.

The 8 are frames of one clip, seconds away from images trained on, so their score is no measure of a method.
"""

_base_ = "camvid.py"
crop_size = (120, 160)
_scale = (240, 180)

train_dataloader = dict(
    dataset=dict(
        pipeline=[
            dict(type="LoadImageFromFile"),
            dict(type="LoadAnnotations"),
            dict(type="RandomResize", scale=_scale, ratio_range=(0.5, 2.0), keep_ratio=True),
            dict(type="RandomCrop", crop_size=crop_size, cat_max_ratio=0.75),
            dict(type="RandomFlip", prob=0.5),
            dict(type="PhotoMetricDistortion"),
            dict(type="PackSegInputs"),
        ],
    ),
)
val_dataloader = dict(
    dataset=dict(
        data_prefix=dict(img_path="img_dir/val", seg_map_path="ann_dir/val"),
        pipeline=[
            dict(type="LoadImageFromFile"),
            dict(type="Resize", scale=_scale, keep_ratio=True),
            dict(type="LoadAnnotations"),
            dict(type="PackSegInputs"),
        ],
    ),
)
