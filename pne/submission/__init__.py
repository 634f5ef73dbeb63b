"""Predictions of the Cityscapes test images, in the archive that the evaluation server takes."""
