# Config of the run tiny; written from the declarations, see spec.yaml.
custom_imports = {"imports": ["pne.heads", "pne.datasets.registered"], "allow_failed_imports": False}
default_scope = "mmseg"
env_cfg = {"cudnn_benchmark": True, "mp_cfg": {"mp_start_method": "fork", "opencv_num_threads": 0}}
model = {
    "type": "EncoderDecoder",
    "data_preprocessor": {
        "type": "SegDataPreProcessor",
        "mean": [123.675, 116.28, 103.53],
        "std": [58.395, 57.12, 57.375],
        "bgr_to_rgb": True,
        "pad_val": 0,
        "seg_pad_val": 255,
        "size": (32, 48),
    },
    "backbone": {
        "type": "ResNetV1c",
        "depth": 18,
        "base_channels": 8,
        "stem_channels": 8,
        "strides": (1, 2, 1, 1),
        "dilations": (1, 1, 2, 4),
        "norm_cfg": {"type": "BN"},
        "contract_dilation": True,
    },
    "decode_head": {
        "type": "ContrastHead",
        "in_channels": 64,
        "in_index": 3,
        "channels": 16,
        "num_convs": 1,
        "concat_input": False,
        "dropout_ratio": 0.1,
        "num_classes": 11,
        "norm_cfg": {"type": "BN"},
        "align_corners": False,
        "loss_decode": {"type": "CrossEntropyLoss", "use_sigmoid": False, "loss_weight": 1.0},
        "base": "FCNHead",
        "contrast": {
            "type": "ContrastBranch",
            "loss": {"type": "PNELoss"},
            "weight": 1.3,
            "start": 0,
            "projection": {"channels": 8},
        },
    },
    "train_cfg": {},
    "test_cfg": {"mode": "whole"},
}
train_dataloader = {
    "batch_size": 2,
    "num_workers": 0,
    "persistent_workers": False,
    "sampler": {"type": "PositionedInfiniteSampler", "shuffle": True, "seed": 0},
    "dataset": {
        "type": "PositionSeeded",
        "dataset": {
            "type": "CamVidDataset",
            "data_root": "data/camvid",
            "data_prefix": {"img_path": "img_dir/train", "seg_map_path": "ann_dir/train"},
            "pipeline": [
                {"type": "LoadImageFromFile"},
                {"type": "LoadAnnotations"},
                {"type": "RandomResize", "scale": (60, 40), "ratio_range": (0.8, 1.5), "keep_ratio": True},
                {"type": "RandomCrop", "crop_size": (32, 48), "cat_max_ratio": 0.75},
                {"type": "RandomFlip", "prob": 0.5},
                {"type": "PhotoMetricDistortion"},
                {"type": "PackSegInputs"},
            ],
            "cache_data": True,
        },
    },
}
test_dataloader = {
    "batch_size": 1,
    "num_workers": 0,
    "persistent_workers": False,
    "sampler": {"type": "DefaultSampler", "shuffle": False},
    "dataset": {
        "type": "CamVidDataset",
        "data_root": "data/camvid",
        "data_prefix": {"img_path": "img_dir/test", "seg_map_path": "ann_dir/test"},
        "pipeline": [{"type": "LoadImageFromFile"}, {"type": "LoadAnnotations"}, {"type": "PackSegInputs"}],
        "cache_data": True,
    },
}
train_cfg = {"type": "IterBasedTrainLoop", "max_iters": 4, "val_interval": 4}
optim_wrapper = {
    "type": "OptimWrapper",
    "optimizer": {"type": "SGD", "lr": 0.02, "momentum": 0.9, "weight_decay": 0.0005},
}
param_scheduler = [{"type": "PolyLR", "eta_min": 0.0001, "power": 0.9, "begin": 0, "end": 4, "by_epoch": False}]
randomness = {"seed": 0}
