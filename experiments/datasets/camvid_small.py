"""CamVid at 360x270, trained at 192x192; scored on the test split, against its labels at 480x360."""

_base_ = "camvid.py"
crop_size = (192, 192)
_scale = (360, 270)

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
        pipeline=[
            dict(type="LoadImageFromFile"),
            dict(type="Resize", scale=_scale, keep_ratio=True),
            dict(type="LoadAnnotations"),
            dict(type="PackSegInputs"),
        ],
    ),
)
