"""The losses as plain loops over images, sets, anchors and pairs, to read beside the equations; float64."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class AnchorPairs:
    """One anchor pixel; lists of pixels hold a pixel as often as it is drawn."""

    image: int
    anchor: int
    times: int
    anchor_set: tuple[int, ...]
    set_size: int
    positives: list[int]
    negatives: list[int]


def classify(logits: Tensor, labels: Tensor) -> tuple[list[list[int]], list[list[int]]]:
    """Return label (None where it is 255) and predicted class of each pixel, row by row, of each image."""
    height, width = logits.shape[2:]
    rows, columns = labels.shape[1:]
    label = [
        [int(image[i * rows // height, j * columns // width]) for i in range(height) for j in range(width)]
        for image in labels
    ]
    label = [[None if y == 255 else y for y in image] for image in label]
    predicted = [image.flatten(1).argmax(0).tolist() for image in logits]
    return label, predicted


def take(pixels: Sequence[int], number: int, cyclic: bool) -> list[int]:
    """Take the first pixels, repeated cyclically where there are fewer and `cyclic` is set."""
    if not pixels:
        return []
    return [pixels[i % len(pixels)] for i in range(number if cyclic else min(number, len(pixels)))]


def find_sets(
    label: Sequence[int | None], predicted: Sequence[int], logits: Tensor, options: Mapping[str, Any]
) -> dict[tuple[int, ...], tuple[list[int], list[int], list[int]]]:
    """Return the usable sets of an image: members, candidates for positives, candidates for negatives (row by row)."""
    pixels = range(len(label))
    members_of_sets = [i for i in pixels if label[i] is not None and predicted[i] != label[i]]
    rival = list(predicted)
    if options["anchors_from"] == "labelled":
        members_of_sets = [i for i in pixels if label[i] is not None]
        scores = logits.flatten(1).T.tolist()
        for i in members_of_sets:
            rival[i] = max((c for c in range(len(scores[i])) if c != label[i]), key=lambda c, i=i: scores[i][c])
    if options["empty_negatives"] == "anchors":
        members_of_sets = [i for i in members_of_sets if rival[i] in label]
    mixed = options["anchor_sets"] == "mixed"
    sets: dict[tuple[int, ...], list[int]] = {}
    for i in members_of_sets:
        sets.setdefault((label[i],) if mixed else (label[i], rival[i]), []).append(i)
    found = {}
    for key, members in sorted(sets.items()):
        positives = [i for i in pixels if label[i] == predicted[i] == key[0]]
        if options["negatives"] == "corresponding":
            classes = {rival[i] for i in members}
        else:
            classes = set(predicted) | set(label) - {None}
        classes -= {key[0]}
        negatives = [i for i in pixels if label[i] == predicted[i] and label[i] in classes]
        if positives and (negatives or options["empty_negatives"] == "anchors"):
            found[key] = (members, positives, negatives)
    return found


def list_pairs(embeddings: Tensor, logits: Tensor, labels: Tensor, options: Mapping[str, Any]) -> list[AnchorPairs]:
    """List all pairs where nothing is left to chance: raster sampling, or limits that take everything."""
    cyclic, number = options["sampling"] == "raster", options["num_samples"]
    pairs = []
    for image, (label, predicted) in enumerate(zip(*classify(logits, labels), strict=True)):
        unit = embeddings[image].detach().flatten(1)
        unit = (unit / unit.norm(dim=0)).T
        anchors: list[tuple[int, int, tuple[int, ...]]] = []
        sets = find_sets(label, predicted, logits[image], options)
        for key, (members, _, _) in sets.items():
            if options["max_set_size"] is not None and len(members) > options["max_set_size"]:
                continue
            drawn = members
            if options["anchors_per_set"] is not None:
                assert cyclic or len(members) <= options["anchors_per_set"], "left to chance"
                drawn = take(members, options["anchors_per_set"], cyclic)
            anchors += [(i, drawn.count(i), key) for i in sorted(set(drawn))]
        if options["max_anchors"] is not None:
            assert cyclic or len(anchors) <= options["max_anchors"], "left to chance"
            if options["anchor_draw"] == "balanced":  # the first of each set, then the second of each
                anchors.sort(key=lambda a, all_=tuple(anchors): (sum(b[2] == a[2] and b < a for b in all_), a[0]))
            else:
                anchors.sort()
            anchors = anchors[: options["max_anchors"]]
        for anchor, times, key in anchors:
            members, positives, negatives = sets[key]
            mates = [(i, t) for i, t, k in sorted(anchors) if k == key]
            if not negatives:
                negatives = [i for i, _ in mates]
            elif options["negatives"] == "hard":
                centre = sum(t * unit[i] for i, t in mates)
                negatives = sorted(negatives, key=lambda i: -float(unit[i] @ centre))
            else:
                assert cyclic or len(negatives) <= number, "left to chance"
            assert cyclic or len(positives) <= number, "left to chance"
            drawn = [i for i in take(positives, number, cyclic) if i != anchor]
            if drawn:
                pairs.append(
                    AnchorPairs(image, anchor, times, key, len(members), drawn, take(negatives, number, cyclic))
                )
    return pairs


def reference_loss(
    embeddings: Tensor, logits: Tensor, pairs: Sequence[AnchorPairs], options: Mapping[str, Any]
) -> Tensor:
    """Evaluate the equation for listed pairs, one anchor at a time; the options tell which."""
    flat, scores = embeddings.flatten(2), logits.flatten(2)
    total, number = (embeddings * 0).sum(), 0
    for pair in pairs:
        x = flat[pair.image, :, pair.anchor]
        length = x.norm().detach() if options["detach_anchor_norm"] else x.norm()

        def cosines(pixels: list[int], x: Tensor = x / length, image: int = pair.image) -> Tensor:
            y = flat[image][:, pixels]
            y = y.detach() if options["detach_samples"] else y
            return x @ (y / y.norm(dim=0)) / options["temperature"]

        positive, negative = cosines(pair.positives).exp(), cosines(pair.negatives).exp()
        if "negative_mean" in options:  # the asymmetric contrast
            repulsion = negative.mean() if options["negative_mean"] else negative.sum()
            term = -(positive / (positive + repulsion)).log().mean()
        else:
            score = scores[pair.image][:, pair.positives].detach()
            if options["positive_weight"] == "softmax":
                weight = score.softmax(0).amax(0)
            elif options["positive_weight"] == "logit":
                weight = score.amax(0).clamp(min=1e-6)
            else:
                weight = torch.ones_like(positive)
            if options["normalize_weight"]:
                weight = weight / weight.mean()
            term = (1 + negative.mean() / (weight * positive).mean()).log()
        total, number = total + pair.times * term, number + pair.times
    loss = total / max(number, 1)
    if options["reduction"] == "set_size" and pairs:
        sizes = {(pair.image, pair.anchor_set): pair.set_size for pair in pairs}
        loss = loss * (sum(sizes.values()) / len(sizes) / options["num_samples"])
    return loss


def reference_pixel_contrast(
    vectors: Tensor, classes: Sequence[int], memory: Tensor | None, temperature: float, base_temperature: float
) -> Tensor:
    """Evaluate the cross-image contrast of unit vectors (M, D), one anchor at a time."""
    terms = []
    for i, own in enumerate(classes):
        if memory is None:
            candidates = [(classes[j], vectors[j]) for j in range(len(classes)) if j != i]
        else:
            candidates = [(c, row) for c in range(len(memory)) for row in memory[c]]
        positives = [(vectors[i] @ y / temperature).exp() for c, y in candidates if c == own]
        negatives = sum((vectors[i] @ y / temperature).exp() for c, y in candidates if c != own)
        if positives:
            terms.append(sum(-(e / (e + negatives)).log() for e in positives) / len(positives))
    if not terms:
        return vectors.sum() * 0
    return sum(terms) / len(terms) * (temperature / base_temperature)
