"""The text under each figure: what it shows, of which data, by which rule; plain sentences for Markdown and RST."""

from collections.abc import Sequence

from analysis.figures.declaration import ResolvedFigure
from pne.declaration.resolved import ResolvedTrack

NOT_COMPARABLE = "It is not the paper's data, so that nothing here may be compared with published values."


def about_data(figure: ResolvedFigure, track: ResolvedTrack) -> str:
    """Name the data that is really shown and say whether the paper's figures may be compared with it."""
    names = dict.fromkeys(track.runs[run].dataset for run in figure.runs if run in track.runs)
    titles = " and ".join(track.declaration.datasets[name].title for name in names)
    text = f"Data: {titles} (track {track.name})."
    if not track.declaration.comparable:
        text += f" {NOT_COMPARABLE}"
    return text


def write_caption(figure: ResolvedFigure, track: ResolvedTrack, sentences: Sequence[str]) -> str:
    """Join title, sentences and data to one paragraph each."""
    paper = figure.declaration.paper
    where = f" In the paper: {', '.join(paper)}." if paper else ""
    parts = [f"{figure.declaration.title}.{where}", " ".join(sentences), about_data(figure, track)]
    return "\n\n".join(part for part in parts if part) + "\n"


def name_seeds(figure: ResolvedFigure, track: ResolvedTrack) -> str:
    """Say how many seeds are behind the figure."""
    seeds = sorted({track.runs[run].seed for run in figure.runs if run in track.runs})
    numbers = ", ".join(map(str, seeds))
    return f"Seed {numbers}." if len(seeds) == 1 else f"Seeds {numbers}."
