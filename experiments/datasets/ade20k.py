"""ADE20K at 512x512, as mmsegmentation ships it: 150 classes, 20210 and 2000 images.

The paper states no crop; 512x512 is mmsegmentation's.
"""

stock = "_base_/datasets/ade20k.py"
num_classes = 150
