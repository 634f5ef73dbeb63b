"""SyntheticStreet with 11 classes, 64x96: stands for Cityscapes. Trained at full size after a random resize."""

num_classes = 11
crop_size = (64, 96)
_scale = (96, 64)

train_dataloader = dict(
    dataset=dict(
        type="StreetCityDataset",
        cache_data=False,
        data_prefix=dict(img_path="img_dir/train", seg_map_path="ann_dir/train"),
        pipeline=[
            dict(type="LoadImageFromFile"),
            dict(type="LoadAnnotations"),
            dict(type="RandomResize", scale=_scale, ratio_range=(0.75, 1.5), keep_ratio=True),
            dict(type="RandomCrop", crop_size=crop_size, cat_max_ratio=0.75),
            dict(type="RandomFlip", prob=0.5),
            dict(type="PackSegInputs"),
        ],
    ),
)
val_dataloader = dict(
    batch_size=1,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(
        type="StreetCityDataset",
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
