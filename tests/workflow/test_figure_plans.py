"""What is made anew of the figures, on a track whose every run is trained and whose every figure is drawn."""

from pathlib import Path

import pytest
from checkout import Checkout

from analysis.figures import ResolvedFigure, resolve_figures
from pne.files import write_text
from pne.spec import load_track

REPORT = "results/quick/report"
OF_TABLE_EMBEDDING = ("tsne_sampling", "tsne_loss", "pairs", "training_curves")


def figures_of(checkout: Checkout) -> dict[str, ResolvedFigure]:
    experiments = checkout / "experiments"
    return resolve_figures(load_track("quick", experiments=experiments), experiments)


@pytest.fixture
def drawn(finished: Checkout) -> Checkout:
    """Made-up files of everything that the figures and the report leave, each after what it is made from."""
    figures = figures_of(finished)
    files = [f"results/quick/features/{run}.npz" for figure in figures.values() for run in figure.first_seed_runs]
    folders = {name: f"results/quick/figures/data/{name}" for name in figures}
    files += [f"{folder}/{name}" for folder in folders.values() for name in ("map.npz", "selection.json")]
    files += [f"{folders[name]}/{run}.npz" for name, figure in figures.items() for run in figure.first_seed_runs]
    files += [f"results/quick/figures/{name}.{suffix}" for name in figures for suffix in ("pdf", "png", "md")]
    files += [f"results/quick/claims/claims.{suffix}" for suffix in ("csv", "json", "md")]
    tables = load_track("quick", experiments=finished / "experiments").tables
    files += [f"{REPORT}/{name}.html" for name, table in tables.items() if table.available] + [f"{REPORT}/claims.html"]
    for file in dict.fromkeys(files):
        if not (finished / file).exists():
            write_text(finished / file, "made up")
    return finished


def append_comment(path: Path) -> None:
    with path.open("a") as file:
        file.write("\n# a comment\n")


def test_a_drawn_track_has_nothing_to_do(drawn):
    assert drawn.plan("figures", "report_pages").empty


@pytest.mark.parametrize(
    "script",
    [
        "analysis/figures/panels.py",
        "analysis/figures/draw.py",
        "analysis/statistics.py",
        "analysis/latex_text.py",
        "pne/extract/archives.py",
    ],
)
def test_a_changed_plot_is_drawn_and_nothing_is_computed_extracted_or_trained(drawn, script):
    append_comment(drawn / script)
    number = len(figures_of(drawn))
    assert drawn.plan("figures").jobs == {"draw_figure": number, "figures": 1}
    assert drawn.plan("figure_sweeps").jobs == {"draw_figure": 1, "figure_sweeps": 1}


def test_a_changed_plot_reaches_the_report_and_no_page_of_it(drawn):
    append_comment(drawn / "analysis/figures/plots.py")
    assert drawn.plan("report_pages").jobs == {"draw_figure": len(figures_of(drawn)), "report_pages": 1}


def test_a_published_value_redraws_the_figures_of_its_table_alone(drawn):
    drawn.replace("experiments/tables/hyperparameters.yaml", "published: {miou: 4.2}", "published: {miou: 4.1}")
    assert drawn.plan("figures").jobs == {"draw_figure": 1, "figures": 1}
    assert drawn.plan("figure_sweeps").jobs == {"draw_figure": 1, "figure_sweeps": 1}
    assert drawn.plan("figure_pairs").empty


def test_a_label_of_a_row_redraws_and_moves_no_coordinates(drawn):
    append_comment(drawn / "experiments/tables/embedding.yaml")
    assert drawn.plan("figures").jobs == {"draw_figure": len(OF_TABLE_EMBEDDING), "figures": 1}
    for name in OF_TABLE_EMBEDDING:
        assert drawn.plan(f"figure_{name}").jobs == {"draw_figure": 1, f"figure_{name}": 1}


def test_another_rule_of_selection_selects_and_extracts_and_trains_nothing(drawn):
    append_comment(drawn / "analysis/figures/selection.py")
    jobs = drawn.plan("figure_pairs").jobs
    assert jobs == {"select_for_figure": 1, "extract_for_figure": 1, "draw_figure": 1, "figure_pairs": 1}


def test_other_coordinates_are_computed_from_the_stored_features(drawn):
    append_comment(drawn / "analysis/figures/tsne.py")
    assert drawn.plan("figure_tsne_loss").jobs == {"compute_map": 1, "draw_figure": 1, "figure_tsne_loss": 1}
