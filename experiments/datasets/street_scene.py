"""SyntheticStreet with 14 classes and another layout of streets: stands for ADE20K."""

_base_ = "street_city.py"
num_classes = 14
train_dataloader = dict(dataset=dict(type="StreetSceneDataset"))
val_dataloader = dict(dataset=dict(type="StreetSceneDataset"))
