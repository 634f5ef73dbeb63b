"""Declared figures find their runs on every track, and the command draws them from stored results."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from samples import made_up_pairs, made_up_predictions, write_features, write_history, write_predictions

from analysis.figures import choose, data_folder, read_figures, resolve_figures
from analysis.figures.__main__ import main
from pne.errors import UserError
from pne.extract.archives import ConfusionSelection, read_selection
from pne.results import EvaluationResult, read_result, write_result
from pne.spec import load_track, write_spec

EXPERIMENTS = Path("experiments")


def test_every_figure_is_offered_where_its_table_is(in_repository):
    declared = set(read_figures(EXPERIMENTS))
    for name, expected in (
        ("quick", declared),
        ("paper", declared),
        ("camvid", declared - {"qualitative_coco_stuff", "qualitative_ade20k"}),
    ):
        figures = resolve_figures(load_track(name), EXPERIMENTS)
        assert {key for key, figure in figures.items() if figure.available} == expected
        assert all(figure.runs for figure in figures.values() if figure.available)


def test_a_figure_that_is_not_offered_says_why(in_repository):
    figures = resolve_figures(load_track("camvid"), EXPERIMENTS)
    with pytest.raises(UserError, match="qualitative_coco_stuff is not offered: table coco_stuff"):
        choose(figures, "qualitative_coco_stuff", "camvid")
    with pytest.raises(UserError, match="did you mean tsne_loss"):
        choose(figures, "tsne_los", "camvid")


def test_pictures_use_one_seed_and_numbers_all(in_repository):
    figures = resolve_figures(load_track("quick", seeds=[0, 1, 2]), EXPERIMENTS)
    assert len(figures["tsne_loss"].runs) == 2
    assert len(figures["training_curves"].runs) == 15
    assert len(figures["sweeps"].runs) == 3 * 15  # the setting of both sweeps is one run


def test_cited_labels_are_labels_of_the_paper(in_repository, shared):
    source = (shared / "paper" / "paper.tex").read_text()
    for figure in read_figures(EXPERIMENTS).values():
        for label in figure.paper:
            assert f"\\label{{{label}}}" in source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": {"embedding": ["bases", "pne"]}}, r"tsne_loss.rows.embedding: no row 'bases'; did you mean base\?"),
        ({"rows": {"embeddings": ["base", "pne"]}}, r"tsne_loss.rows: no table 'embeddings'; did you mean embedding\?"),
        ({"rows": {"embedding": ["base"]}}, "tsne_loss shows 2 rows, got 1"),
        ({"rows": {"cityscapes": ["aaf", "deeplabv3"]}}, "row 'aaf' has no runs"),
        ({"kind": "tsne"}, "tsne_loss.kind: Input should be 'tsne_sampling'.*'class_iou'; got 'tsne'"),
        ({"colour": "red"}, "tsne_loss.colour: unknown key; allowed: kind, title, paper, rows"),
        ({"titel": "-"}, r"tsne_loss.titel: unknown key; did you mean title\?"),
        ({"rows": {"embedding": ["base", "pne"], "cityscapes": ["hrnet", "hrnet_pne"]}}, "shows one table, got 2"),
        (
            {"kind": "sweeps", "rows": {"cityscapes": "all"}},
            "tsne_loss.rows: kind sweeps shows tables of layout sweep, 'cityscapes' is none; allowed: hyperparameters",
        ),
    ],
)
def test_a_wrong_declaration_names_figure_and_key(in_repository, tmp_path, change, message):
    declared = yaml.safe_load((EXPERIMENTS / "figures.yaml").read_text())
    declared["tsne_loss"] |= change
    (tmp_path / "figures.yaml").write_text(yaml.safe_dump(declared))
    with pytest.raises(UserError, match=message) as caught:
        resolve_figures(load_track("quick"), tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'figures.yaml'}: tsne_loss.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected figures by name, got None"),
        ("[a]", "expected figures by name"),
        ("tsne: 3\n", "tsne: expected keys and values, got 3; allowed: kind, title, paper, rows"),
        ("t-SNE: {}\n", "'t-SNE': expected a name of lower-case letters"),
        ("tsne: {kind: sweeps, title: -}\n", "tsne.rows: missing; this key is required"),
    ],
)
def test_a_file_that_declares_no_figures_is_one_clear_error(tmp_path, text, message):
    (tmp_path / "figures.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_figures(tmp_path)


def test_the_labels_of_a_sweep_must_be_numbers(in_repository):
    track = load_track("quick")
    row = next(iter(track.tables["hyperparameters"].rows.values()))
    object.__setattr__(row, "declaration", row.declaration.model_copy(update={"label": "high"}))
    with pytest.raises(UserError, match=r"sweeps\.rows: kind sweeps needs numbers as labels, row 'temperature_0_1'"):
        resolve_figures(track, EXPERIMENTS)


@pytest.fixture
def results(quick, finish, options) -> list[str]:
    """Made-up results, histories and features of the runs that the figures need; returns the options of the command."""
    figures = resolve_figures(quick, EXPERIMENTS)
    for number, run in enumerate(dict.fromkeys(run for figure in figures.values() for run in figure.runs)):
        spec = quick.runs[run]
        write_spec(spec, quick.config(run))
        finish(spec)
        write_history(spec, 0.5 + number)
    write_features(quick)
    return options


@pytest.fixture
def drawn(results, tmp_path) -> Callable[[str], dict[str, bytes]]:
    """Return a function that draws a figure and reads its files."""

    def draw(name: str) -> dict[str, bytes]:
        assert main(["draw", name, *results]) == 0
        folder = tmp_path / "quick" / "figures"
        return {suffix: (folder / f"{name}.{suffix}").read_bytes() for suffix in ("pdf", "png", "md")}

    return draw


def test_plots_of_numbers_are_drawn_with_captions(drawn):
    for name in ("sweeps", "training_curves", "class_iou"):
        found = drawn(name)
        assert found["pdf"].startswith(b"%PDF")
        assert found["png"].startswith(b"\x89PNG")
        caption = found["md"].decode()
        assert "SyntheticStreet" in caption
        assert "not the paper's data" in caption
        assert "In the paper: table4." in caption or name != "sweeps"


@pytest.mark.parametrize("name", ["sweeps", "class_iou"])
def test_results_of_other_settings_are_not_drawn(name, quick, results, capsys):
    figure = resolve_figures(quick, EXPERIMENTS)[name]
    path = quick.runs[figure.runs[0]].directory / f"{figure.parts[0].table.declaration.evaluation}.json"
    write_result(path, read_result(path, EvaluationResult).model_copy(update={"config_sha256": "0" * 64}))
    assert main(["draw", name, *results]) != 0
    assert f"{path.name}: config_sha256 0000" in capsys.readouterr().err


def test_a_plot_changes_no_coordinates_and_drawing_twice_gives_the_same_bytes(results, drawn, tmp_path):
    assert main(["map", "tsne_loss", "tsne_sampling", "--per-class", "8", *results]) == 0
    stored = tmp_path / "quick" / "figures" / "data" / "tsne_loss" / "map.npz"
    before = stored.stat().st_mtime_ns
    assert drawn("tsne_loss") == drawn("tsne_loss")
    assert stored.stat().st_mtime_ns == before
    assert b"method sklearn" in drawn("tsne_sampling")["md"]


def test_drawing_before_computing_names_what_is_missing(results, capsys):
    assert main(["draw", "tsne_loss", *results]) == 2
    assert "no such file" in capsys.readouterr().err


def test_selections_are_stored_and_their_rule_is_printed_in_the_caption(results, drawn, quick):
    assert main(["select", "qualitative_cityscapes", "pairs", *results]) == 0
    figures = resolve_figures(quick, EXPERIMENTS)
    images = write_predictions(figures["qualitative_cityscapes"], quick)
    assert images.rule in drawn("qualitative_cityscapes")["md"].decode()

    folder = data_folder(figures["pairs"], quick)
    confusions = read_selection(folder / "selection.json", ConfusionSelection)
    pairs = made_up_pairs()
    archive = folder / f"{figures['pairs'].first_seed_runs[0]}.npz"
    pairs.write(archive)
    caption = drawn("pairs")["md"].decode()
    assert f"{confusions.rule} {pairs.about['choice']}" in caption
    assert "2 of 3 mistaken cells" in caption
    assert "the confusion of tree with building in image four" in caption

    pairs.about |= {"true_class": None, "predicted_class": None, "choice": "The loss draws no pair at all."}
    for name in ("candidates", "anchors", "positives", "negatives"):
        setattr(pairs, name, getattr(pairs, name)[:0])
    pairs.write(archive)
    caption = drawn("pairs")["md"].decode()
    assert "The loss draws no pair at all. Shown is image four (PNE)." in caption


def test_predictions_of_an_older_selection_are_refused(results, quick, capsys):
    main(["select", "qualitative_cityscapes", *results])
    figure = resolve_figures(quick, EXPERIMENTS)["qualitative_cityscapes"]
    for run in figure.first_seed_runs:
        predictions = made_up_predictions(run, 0)
        predictions.index[:] = 99
        predictions.write(data_folder(figure, quick) / f"{run}.npz")
    assert main(["draw", "qualitative_cityscapes", *results]) == 2
    assert "predictions of other images" in capsys.readouterr().err
