"""Cityscapes at 512x1024, as mmsegmentation ships it: scale 0.5 to 2, crop, flip, photometric distortion.

The paper states no crop; 512x1024 is that of the authors' released config.
"""

stock = "_base_/datasets/cityscapes.py"
num_classes = 19
