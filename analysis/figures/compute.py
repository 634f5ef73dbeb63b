"""What is computed for a figure and stored apart from it: selections by rule, and t-SNE coordinates."""

from pathlib import Path

from analysis.figures.confusions import read_entries, select_confusions, select_images
from analysis.figures.declaration import ResolvedFigure, data_folder, features_file
from analysis.figures.tsne import map_one, map_two
from pne.declaration.resolved import ResolvedTrack
from pne.errors import UserError
from pne.extraction.archives import Features
from pne.extraction.selections import write_selection

SELECTION = "selection.json"
MAP = "map.npz"
PER_CLASS = 100  # pixels of a class on a t-SNE plane
CONFUSION = "single_scale.confusion.npz"  # selections show single-scale predictions


def folder_of(figure: ResolvedFigure, track: ResolvedTrack) -> Path:
    """Folder of what is stored for a figure on a track."""
    return data_folder(track.runs[figure.first_seed_runs[0]].runtime.results, figure.name)


def select(figure: ResolvedFigure, track: ResolvedTrack) -> Path:
    """Choose images, or a confusion, by the rule of the figure's kind and store the choice.

    Raises
    ------
    UserError
        If the figure selects nothing, or counts are missing.
    """
    entries = [read_entries(track.runs[run].directory / CONFUSION) for run in figure.first_seed_runs]
    path = folder_of(figure, track) / SELECTION
    if figure.declaration.kind == "qualitative":
        write_selection(path, select_images(*entries))
    elif figure.declaration.kind == "pairs":
        write_selection(path, select_confusions(*entries))
    else:
        raise UserError(f"figure {figure.name}: a figure of kind {figure.declaration.kind} selects no images")
    return path


def compute_map(figure: ResolvedFigure, track: ResolvedTrack, method: str, per_class: int) -> Path:
    """Compute t-SNE coordinates from the stored features and store them.

    Raises
    ------
    UserError
        If the figure shows no t-SNE, or features are missing.
    """
    features = [Features.read(features_file(track.runs[run])) for run in figure.first_seed_runs]
    about = {"figure": figure.name, "runs": figure.first_seed_runs}
    if figure.declaration.kind == "tsne_sampling":
        data = map_one(features[0], per_class, method, about)
    elif figure.declaration.kind == "tsne_loss":
        data = map_two(*features, per_class, method, about)
    else:
        raise UserError(f"figure {figure.name}: a figure of kind {figure.declaration.kind} has no t-SNE coordinates")
    path = folder_of(figure, track) / MAP
    data.write(path)
    return path
