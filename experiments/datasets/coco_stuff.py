"""COCO-Stuff 10k at 512x512, as mmsegmentation ships it: 171 classes (80 things, 91 stuff), 9000 and 1000 images.

The paper states no crop; 512x512 is mmsegmentation's.
"""

stock = "_base_/datasets/coco-stuff10k.py"
num_classes = 171
