"""CamVid, 11 classes, 480x360, trained at 352x352; reported on the test split, whose scenes differ most from training.

Smaller copies of the images are brought to 480x360 first, so they train and test at the same size.
"""

num_classes = 11
crop_size = (352, 352)
_scale = (480, 360)

train_dataloader = dict(
    dataset=dict(
        type="CamVidDataset",
        cache_data=False,
        data_prefix=dict(img_path="img_dir/train", seg_map_path="ann_dir/train"),
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
    batch_size=1,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(
        type="CamVidDataset",
        cache_data=False,
        data_prefix=dict(img_path="img_dir/test", seg_map_path="ann_dir/test"),
        pipeline=[
            dict(type="LoadImageFromFile"),
            dict(type="Resize", scale=_scale, keep_ratio=True),
            dict(type="LoadAnnotations"),
            dict(type="PackSegInputs"),
        ],
    ),
)
