"""What is made anew of the figures, on a track whose every run is trained and whose every figure is drawn."""

from pathlib import Path

import pytest
from checkout import Checkout

from analysis.figures import ResolvedFigure, resolve_figures
from pne.spec import load_track

OF_TABLE_EMBEDDING = {"tsne_sampling", "tsne_loss", "pairs", "training_curves"}
DRAW = [*(f"analysis/{name}.py" for name in ("figures/panels", "figures/draw", "uncertainty", "latex_text")),
        "pne/extract/archives.py"]  # fmt: skip


def figures_of(checkout: Checkout) -> dict[str, ResolvedFigure]:
    experiments = checkout / "experiments"
    return resolve_figures(load_track("quick", experiments=experiments), experiments)


def append_comment(path: Path) -> None:
    with path.open("a") as file:
        file.write("\n# a comment\n")


def test_a_drawn_track_has_nothing_to_do(drawn):
    assert drawn.plan("figures", "report_pages").empty


@pytest.mark.parametrize("script", DRAW)
def test_a_changed_plot_is_drawn_and_nothing_is_computed_extracted_or_trained(drawn, script):
    append_comment(drawn / script)
    assert drawn.plan("figures").jobs == {"draw_figure": len(figures_of(drawn)), "figures": 1}


def test_a_changed_plot_reaches_the_report_and_no_page_of_it(drawn):
    append_comment(drawn / "analysis/figures/plots.py")
    number = len(figures_of(drawn))
    assert drawn.plan("report_pages").jobs == {"draw_figure": number, "figure_image": number, "report_pages": 1}
    assert drawn.plan("figure_sweeps").jobs == {"draw_figure": 1, "figure_sweeps": 1}


@pytest.mark.parametrize(
    ("file", "old", "new", "figures"),
    [
        ("hyperparameters", "published: {miou: 4.2}", "published: {miou: 4.1}", {"sweeps"}),
        ("embedding", "question: ", "question: After all, ", OF_TABLE_EMBEDDING),
    ],
)
def test_a_declaration_redraws_the_figures_of_its_table_alone_and_moves_no_coordinates(drawn, file, old, new, figures):
    drawn.replace(f"experiments/tables/{file}.yaml", old, new)
    plan = drawn.plan("figures")
    assert plan.of("draw") == figures
    assert plan.jobs == {"draw_figure": len(figures), "figures": 1}


def test_another_rule_of_selection_selects_and_extracts_and_trains_nothing(drawn):
    append_comment(drawn / "analysis/figures/selection.py")
    jobs = drawn.plan("figure_pairs").jobs
    assert jobs == {"select_for_figure": 1, "extract_pairs": 1, "draw_figure": 1, "figure_pairs": 1}


def test_other_coordinates_are_computed_from_the_stored_features(drawn):
    append_comment(drawn / "analysis/figures/tsne.py")
    assert drawn.plan("figure_tsne_loss").jobs == {"compute_map": 1, "draw_figure": 1, "figure_tsne_loss": 1}
