"""How often the intervals and verdicts of `analysis.uncertainty` are wrong, simulated where the truth is known.

    python benchmarks/error_rates.py --write docs/statistics.md

A seed shifts all settings alike (standard deviation 2.5) and each setting by itself, such that paired differences of
two settings have a standard deviation of 1: truths are in that unit. The command fails where a rate misses its target.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.signal import lfilter
from scipy.special import expit

from analysis.uncertainty import (
    Bounds,
    ClassCounts,
    Estimate,
    Interval,
    claim_verdict,
    image_blocks,
    image_interval,
    judge,
    lead,
    leave_out,
    miou,
    over_seeds,
    read,
    spread,
)
from pne.files import write_text

REPETITIONS = 5000
RESAMPLES = 300
SEEDS = (3, 5, 8)
ABOVE: Bounds = (0, None)
BOOTSTRAP = "difference of mIoU, bootstrap of single images in place of the jackknife"
MARKS = ("<!-- simulated: make simulate writes what follows -->\n", "<!-- end of what make simulate writes -->\n")
HEADS = ("rule", "truth", "n", "interval covers", "wrongly decided", "decided")


@dataclass(frozen=True)
class Rates:
    """What a rule did in one situation.

    Attributes
    ----------
    rule, truth : str
        What was asked, and what is so.
    size : int
        Number of seeds, or of blocks of images.
    covers, wrong, decided : float or None
        Shares of the repetitions, percent: the interval holds the truth; a verdict contradicts it; a verdict was given.
    least_cover, most_cover, most_wrong, least_decided : float or None
        Targets.
    """

    rule: str
    truth: str
    size: int
    covers: float | None = None
    wrong: float | None = None
    decided: float | None = None
    least_cover: float | None = 93
    most_cover: float | None = None
    most_wrong: float | None = 7
    least_decided: float | None = None

    def misses(self, slack: float = 0) -> bool:
        """Whether a target is missed by more than ``slack`` percentage points."""
        bounds = (
            (self.covers, self.least_cover, self.most_cover),
            (self.wrong, None, self.most_wrong),
            (self.decided, self.least_decided, None),
        )
        return any(
            value is not None
            and ((low is not None and value < low - slack) or (high is not None and value > high + slack))
            for value, low, high in bounds
        )


def seeds_of(
    generator: np.random.Generator,
    repetitions: int,
    means: ArrayLike,
    seeds: int,
    scatter: ArrayLike = 1,
    draw: Callable[..., NDArray] | None = None,
) -> NDArray[np.float64]:
    """Draw the results of settings; shape (repetitions, G, seeds).

    Parameters
    ----------
    means, scatter : array_like, shape (G,)
        True means, and by how much more than usual a setting scatters.
    draw : callable, optional
        Of errors with standard deviation 1; default: normal.
    """
    means = np.asarray(means, np.float64)
    shape = (repetitions, len(means), seeds)
    own = (generator.standard_normal if draw is None else draw)(size=shape) * np.sqrt(0.5)
    shared = 2.5 * generator.standard_normal(size=(repetitions, 1, seeds))
    return means[:, None] + shared + own * np.broadcast_to(np.asarray(scatter, np.float64), means.shape)[:, None]


def heavy_tails(generator: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw from Student's t with 3 degrees of freedom, scaled to a standard deviation of 1."""
    return generator.standard_t(3, size) / np.sqrt(3)


def percent(found: NDArray[np.bool_]) -> float:
    """Share of what is true."""
    return 100 * float(found.mean())


def coverage(estimate: Estimate, truth: float) -> float:
    """How often the interval holds the truth, percent."""
    _, low, high = estimate.interval()
    return percent((low <= truth) & (truth <= high))


def differences(generator: np.random.Generator, repetitions: int) -> Iterator[Rates]:
    """A single paired difference, claimed to be above 0."""
    for seeds in SEEDS:
        for truth, text in ((0, "no difference"), (1.6, "a difference of 1.6")):
            values = seeds_of(generator, repetitions, [truth, 0], seeds)
            estimate = over_seeds(values[:, 0] - values[:, 1])
            verdict = judge([estimate], [ABOVE]).verdict[:, 0]
            wrong = verdict == "not held" if truth else verdict != "undetermined"
            decided = percent(verdict != "undetermined") if truth else None
            yield Rates(
                "paired difference", text, seeds, coverage(estimate, truth), percent(wrong), decided, most_cover=97
            )
    for seeds in SEEDS:
        values = seeds_of(generator, repetitions, [0, 0], seeds, draw=partial(heavy_tails, generator))
        estimate = over_seeds(values[:, 0] - values[:, 1])
        wrong = judge([estimate], [ABOVE]).verdict[:, 0] != "undetermined"
        text = "no difference, heavy tails (t with 3 degrees of freedom)"
        yield Rates("paired difference", text, seeds, coverage(estimate, 0), percent(wrong))


def leads(generator: np.random.Generator, repetitions: int) -> Iterator[Rates]:
    """One of eight settings, claimed to be the best."""
    equal, rival, usual = np.zeros(8), np.array([0, 0, *[-6] * 6]), np.ones(8)
    one, last = np.arange(8) == 0, np.arange(8) == 7
    cases = (
        ("all eight are equal", equal, usual),
        ("one other is as good, six are 6 below", rival, usual),
        ("it leads by 1.6", equal + 1.6 * one, usual),
        ("all equal, but one is 20 below and scatters three times as much", equal - 20 * last, usual + 2 * last),
        ("one other is as good and scatters 1.5 times as much", rival, usual + 0.5 * (np.arange(8) == 1)),
        ("one other is as good and scatters three times as much", rival, usual + 2 * (np.arange(8) == 1)),
    )
    for text, means, scatter in cases:
        truth = means[0] - means[1:].max()
        assumed = not (scatter > 1)[1]
        for seeds in SEEDS:
            estimate = lead(seeds_of(generator, repetitions, means, seeds, scatter))
            _, low, high = estimate.interval()
            wrong = (high < 0) | ((low > 0) & (truth == 0))
            yield Rates(
                "lead over the best of seven",
                text if assumed else f"{text} (assumption broken)",
                seeds,
                coverage(estimate, truth),
                percent(wrong),
                percent((low > 0) | (high < 0)) if truth else None,
                least_cover=93 if assumed else None,
                most_wrong=7 if assumed else None,
            )


def spreads(generator: np.random.Generator, repetitions: int) -> Iterator[Rates]:
    """The spread of eight settings, claimed to be at most its truth, or at most 2 where it is 0."""
    one = np.arange(8) == 0
    for text, means in (
        ("0", np.zeros(8)),
        ("2, evenly spaced", np.linspace(0, 2, 8)),
        ("2, one differs", 2 * one),
        ("6, one differs", 6 * one),
    ):
        truth = float(np.ptp(means))
        bound = truth or 2
        for seeds in SEEDS:
            estimate = spread(seeds_of(generator, repetitions, means, seeds))
            _, low, high = estimate.interval()
            decided = (high < bound) | (low > bound)
            wrong = decided if truth else low > bound
            share = None if truth else percent(decided)
            yield Rates("spread of eight", text, seeds, coverage(estimate, truth), percent(wrong), share)


def claims(generator: np.random.Generator, repetitions: int) -> Iterator[Rates]:
    """A claim of four differences to one baseline, each claimed to be above 0."""
    cases = (
        ("all four are 0", [0, 0, 0, 0]),
        ("one is 0, three are 8", [0, 8, 8, 8]),
        ("two are 0, two are 8", [0, 0, 8, 8]),
        ("all four are 1.6", [1.6, 1.6, 1.6, 1.6]),
        ("one is -1.6, three are 1.6", [-1.6, 1.6, 1.6, 1.6]),
    )
    for text, truths in cases:
        for seeds in SEEDS:
            values = seeds_of(generator, repetitions, [*truths, 0], seeds)
            estimates = [over_seeds(values[:, row] - values[:, -1]) for row in range(4)]
            verdict = claim_verdict(judge(estimates, [ABOVE] * 4).verdict)
            decided = verdict != "undetermined"
            least = min(truths)
            wrong = verdict == ("not held" if least > 0 else "held") if least else decided
            share = percent(decided) if least else None
            yield Rates("claim of four checks", text, seeds, None, percent(wrong), share)


def contrasts(generator: np.random.Generator, repetitions: int) -> Iterator[Rates]:
    """One arm against three, read as gain, loss or smaller than 1.5; Holm over three."""
    for text, truths in (
        ("all three are 0", [0, 0, 0]),
        ("one is 1.6, two are 0", [1.6, 0, 0]),
        ("all three are 1.6", [1.6, 1.6, 1.6]),
    ):
        for seeds in SEEDS:
            values = seeds_of(generator, repetitions, [0, *np.negative(truths)], seeds)
            readings = read([over_seeds(values[:, 0] - values[:, row]) for row in (1, 2, 3)], margin=1.5)
            wrong = (readings == "loss") | np.where(np.array(truths) > 0, readings == "smaller", readings == "gain")
            first = percent(readings[:, 0] == "gain") if truths[0] else None
            target = 80 if truths[0] and seeds == 8 else None
            rule = "primary contrast of three"
            yield Rates(rule, text, seeds, None, percent(wrong.any(1)), first, least_decided=target)


def latent(generator: np.random.Generator, clips: Sequence[int], width: int, memory: float) -> NDArray[np.float64]:
    """Standard normal, shape (images, width); within a clip an autoregression of first order."""
    parts = []
    for frames in clips:
        steps = generator.standard_normal((frames, width))
        steps[0] /= np.sqrt(1 - memory**2)
        parts.append(lfilter([np.sqrt(1 - memory**2)], [1, -memory], steps, axis=0))
    return np.concatenate(parts)


def evaluations(
    generator: np.random.Generator, clips: Sequence[int], presence: NDArray[np.float64], memory: float
) -> Iterator[ClassCounts]:
    """Make up what two models score on one test set; hard images are hard for both.

    Parameters
    ----------
    clips : sequence of int
        Images of each.
    presence : ndarray, shape (C,)
        Share of the images that hold a class. Every class is also predicted falsely, wherever.
    memory : float
        Correlation of one frame with the next.
    """
    shape = sum(clips), len(presence)
    names = tuple(f"clip{clip}_{frame:05d}" for clip, frames in enumerate(clips) for frame in range(frames))
    hard = latent(generator, clips, 1, memory)
    labelled = np.exp(0.7 * generator.standard_normal(shape)) * (generator.random(shape) < presence)
    for gain in (0, 0.4):
        skill = np.linspace(0, 2, shape[1]) + gain + hard + 0.7 * latent(generator, clips, shape[1], memory)
        hits = labelled * expit(skill)
        false = generator.gamma(0.5, 0.6 * presence, size=shape)
        yield ClassCounts(*((1e4 * part).astype(np.int64) for part in (hits, labelled, hits + false)), names)


def images(generator: np.random.Generator, repetitions: int) -> Iterator[Rates]:
    """mIoU and its paired difference; the truth is the mean over all test sets."""
    street, tail = np.linspace(0.3, 1, 11), np.minimum(1, 1.2 * np.arange(1, 172) ** -1.1)
    frames = "233 frames of two clips, correlation of neighbours"
    cases = (
        ("100 single images, 11 classes", (100,), street, 0.0, "ade20k", True),
        ("300 single images, 171 classes, rare ones in one or none", (300,), tail, 0.0, "coco_stuff", True),
        (f"{frames} 0.5", (62, 171), street, 0.5, "camvid", True),
        (f"{frames} 0.7", (62, 171), street, 0.7, "camvid", False),
        (f"{frames} 0.7, taken as single images (wrong)", (62, 171), street, 0.7, "", False),
    )
    for text, clips, presence, memory, dataset, meets in cases:
        found: dict[str, list[Interval]] = {"mIoU": [], "difference of mIoU": [], BOOTSTRAP: []}
        for _ in range(repetitions):
            before, after = evaluations(generator, clips, presence, memory)
            blocks = image_blocks(before.names, dataset)
            weights = leave_out(blocks)
            of_after = miou(after, weights)
            difference = of_after - miou(before, weights)
            found["mIoU"].append(image_interval(of_after))
            found["difference of mIoU"].append(image_interval(difference))
            if presence is tail:
                draws = generator.multinomial(len(blocks), weights[0] / len(blocks), size=RESAMPLES)
                resampled = miou(after, draws) - miou(before, draws)
                found[BOOTSTRAP].append(Interval(difference[0], *np.quantile(resampled, [0.025, 0.975])))
        for rule, intervals in found.items():
            if intervals:
                estimates, low, high = np.transpose(intervals)
                covers = percent((low <= estimates.mean()) & (estimates.mean() <= high))
                target = 93 if meets and rule != BOOTSTRAP else None
                yield Rates(f"test images: {rule}", text, int(blocks.max()) + 1, covers, least_cover=target)


PARTS = (differences, leads, spreads, claims, contrasts, images)


def simulate(repetitions: int, parts: Sequence[Callable[..., Iterator[Rates]]] = PARTS, seed: int = 0) -> list[Rates]:
    """Simulate every rule; each part has a random stream of its own."""
    return [rates for part in parts for rates in part(np.random.default_rng([seed, PARTS.index(part)]), repetitions)]


def table(rates: Sequence[Rates]) -> str:
    """Write a Markdown table."""
    lines = [HEADS, ("---", "---", *["--:"] * 4)]
    for one in rates:
        shares = ("" if share is None else f"{share:.1f} %" for share in (one.covers, one.wrong, one.decided))
        lines.append((one.rule, one.truth, str(one.size), *shares))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Simulate, print the table, write it where asked to."""
    parser = argparse.ArgumentParser(prog="python benchmarks/error_rates.py", description=main.__doc__)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--write", type=Path, help="Markdown file whose marked part is replaced")
    args = parser.parse_args(argv)
    rates = simulate(args.repetitions)
    text = table(rates)
    print(text, end="")
    if args.write is not None:
        before, rest = args.write.read_text(encoding="utf-8").split(MARKS[0])
        after = rest.split(MARKS[1])[1]
        write_text(args.write, f"{before}{MARKS[0]}{text}{MARKS[1]}{after}")
    missed = [f"{one.rule}: {one.truth}, n = {one.size}" for one in rates if one.misses()]
    if missed:
        raise SystemExit("error: targets missed:\n" + "\n".join(missed))


if __name__ == "__main__":
    main()
