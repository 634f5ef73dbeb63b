"""The archive: what gets into it and what is refused, what is marked when it is read, and the findings made from it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import change, run_of, write_history

from analysis import archive, findings, plan
from analysis.claims import Claim
from analysis.claims.verdicts import Judge
from analysis.figures import features_file, resolve_figures
from analysis.results import read_results
from analysis.tables.__main__ import main as print_tables
from analysis.tables.layout import print_measured
from analysis.tables.values import MIXED, OTHER_CPU, OTHER_DATA, STALE, collect_values
from pne.engine.provenance import code_sha256
from pne.errors import UserError
from pne.spec import ResolvedTrack, Run, load_track, read_config
from pne.spec.catalogue import read_catalogue

COMMITS = "a" * 40, "b" * 40
MIOU = {"base": 50.0, "pne": 52.0, "asymmetric": 52.1, "ohem": 53.0}  # each seed scatters around it
NOISE = {"base": (0, 0, 0), "pne": (0.2, 0.1, 0.3), "asymmetric": (0.3, 0.4, -0.2), "ohem": (-0.1, 0.1, 0.2)}


@pytest.fixture
def finish_clean(finish: Callable) -> Callable[..., None]:
    """Return a function that finishes a run at a clean commit on a named CPU, with a history."""

    def write(run: Run, miou: float | None = None, gradient: float = 2.0) -> None:
        finish(run, miou=miou, **({"final_statistics": {"gradient_norm": gradient}} if run.contrast else {}))
        write_history(run)
        for name in ("train", *run.evaluations):
            path = run.directory / f"{name}.json"
            change(path, git_commit=COMMITS[0], git_dirty=False, device="cpu: common")

    return write


@pytest.fixture
def arms(tmp_path: Path, in_repository: Path, finish_clean: Callable) -> ResolvedTrack:
    """Track camvid_small with three finished seeds of all arms."""
    track = load_track("camvid_small", results=tmp_path, seeds=[0, 1, 2])
    for key, row in track.tables["arms"].rows.items():
        for seed, run in row.runs.items():
            gradient = {"pne": 2.0, "asymmetric": 3.0}.get(key, 0.0) * (1 + seed)
            finish_clean(track.runs[run], MIOU[key] + NOISE[key][seed], gradient)
    return track


@pytest.fixture
def keep(tmp_path: Path) -> Callable[..., int]:
    """Return a function that archives a track."""
    return lambda track="camvid_small", *more: archive.main(["--track", track, "--results", str(tmp_path), *more])


def archived(track: str, results: Path, **options: object) -> ResolvedTrack:
    return load_track(track, results=results, runtime={"source": "archive"}, **options)


def notes(track: ResolvedTrack, row: str, table: str = "arms") -> tuple[str, ...]:
    """Footnotes of a row's mIoU."""
    printed = print_measured(track.tables[table], track, collect_values(track, read_results(track)))
    (record,) = (record for record in printed.records if record.key == row)
    return next(cell.notes for side, cell in record.cells.items() if side == ("miou", "measured"))


def test_finished_runs_are_kept_without_weights_and_read_from_there_alone(arms, keep, tmp_path, capsys):
    def printed() -> bytes:
        return (tmp_path / "camvid_small/tables/arms.csv").read_bytes()

    options = ["--track", "camvid_small", "--results", str(tmp_path)]
    weights = run_of(arms, "arms", "pne").work_directory / "final.pth"
    weights.parent.mkdir(parents=True)
    weights.touch()
    assert print_tables(options) == 0
    before = printed()
    assert keep("camvid_small", "--data-root", "/some/private/place") == 0
    assert "12 of 32 runs are archived" in capsys.readouterr().out
    folders = sorted((tmp_path / "archive/camvid_small").iterdir())
    assert [folder.name for folder in folders] == sorted(arms.runs)
    files = ["config.py", "history.jsonl", "single_scale.confusion.npz", "single_scale.json", "spec.yaml", "train.json"]
    for folder in folders:
        assert sorted(path.name for path in folder.iterdir()) == files
        assert not any(b"private" in path.read_bytes() for path in folder.iterdir())
        read_config(folder / "spec.yaml")

    shutil.rmtree(tmp_path / "camvid_small")
    assert print_tables([*options, "--source", "archive"]) == 0
    assert printed() == before
    shutil.rmtree(folders[0])
    assert print_tables([*options, "--source", "archive"]) == 0
    assert printed() != before


def test_large_histories_are_left_out(arms, keep, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "LARGEST_HISTORY", 10)
    assert keep() == 0
    assert not list(tmp_path.glob("archive/*/*/history.jsonl"))


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("train.json", {"git_dirty": True}, "train.json: git_dirty True, expected a clean commit"),
        (
            "single_scale.json",
            {"git_commit": None, "git_dirty": None},
            "git_dirty None, expected a clean commit; train",
        ),
        ("train.json", {"earlier_code_sha256": ["0" * 64]}, "made by 2 versions of the code (000000000000, "),
        ("single_scale.json", {"code_sha256": "0" * 64}, "made by 2 versions of the code (000000000000, "),
        ("single_scale.json", {"weights_sha256": "3" * 64}, "evaluated on other weights than train.json is about"),
        ("train.json", {"spec_sha256": "4" * 64}, "it was measured with other settings"),
        ("single_scale.json", {"miou": "much"}, "the file holds no EvaluationResult"),
    ],
)
def test_unfit_results_are_refused_with_their_place_and_nothing_is_kept(
    arms, keep, tmp_path, capsys, file, values, message
):
    run = run_of(arms, "arms", "pne", 1)
    change(run.directory / file, **values)
    assert keep() == 2
    error = capsys.readouterr().err
    assert message in error
    assert run.run in error
    assert f"retrain={run.run}" in error or "run the workflow again" in error
    assert not (tmp_path / "archive").exists()


def test_missing_counts_and_an_unfinished_track_are_refused(arms, keep, tmp_path, capsys):
    counts = run_of(arms, "arms", "base").directory / "single_scale.confusion.npz"
    counts.unlink()
    assert keep() == 2
    assert f"{counts}: no such file, but the archive keeps it" in capsys.readouterr().err
    assert keep("quick") == 2
    assert "track quick: no finished run" in capsys.readouterr().err
    assert not (tmp_path / "archive").exists()


def test_an_entry_never_gives_way_to_other_content_silently(arms, keep, tmp_path, capsys):
    assert keep() == 0
    assert keep() == 0
    entry = tmp_path / "archive/camvid_small" / run_of(arms, "arms", "pne").run / "single_scale.json"
    before = entry.read_bytes()
    change(run_of(arms, "arms", "pne").directory / "single_scale.json", time_s=7.0)
    assert keep() == 2
    assert f"{entry}: differs from" in (error := capsys.readouterr().err)
    assert f"git rm -r {entry.parent}" in error
    assert entry.read_bytes() == before


def test_stale_mixed_and_foreign_entries_are_marked(arms, keep, tmp_path):
    assert keep() == 0
    track = archived("camvid_small", tmp_path, seeds=[0, 1, 2])
    entry = run_of(track, "arms", "pne", 1).directory / "train.json"
    whole = entry.read_text()
    assert notes(track, "pne") == ()

    def noted(**values: object) -> tuple[str, ...]:
        entry.write_text(whole)
        change(entry, **values)
        return notes(track, "pne")

    assert noted(code_sha256="0" * 64) == (
        STALE,
        "Trained with commit aaaaaaaaaa; most of the table: today's code.",
    )
    assert noted(earlier_code_sha256=["1" * 64])[0] == MIXED
    assert noted(dataset_fingerprint="other files") == (OTHER_DATA,)
    assert noted(device="cpu: rare") == (f"{OTHER_CPU}: cpu: rare against cpu: common.",)
    note, *_ = noted(spec_sha256="4" * 64)
    assert "n = 2 of 3 seeds. Seed 1: failed: " in note
    assert noted(seed=1) == ()


def test_in_a_wholly_stale_archive_a_rarer_commit_is_marked(arms, keep, tmp_path):
    assert keep() == 0
    track = archived("camvid_small", tmp_path, seeds=[0, 1, 2])
    for path in tmp_path.glob("archive/camvid_small/*/train.json"):
        change(path, code_sha256="0" * 64)
    assert notes(track, "pne") == (STALE,)
    change(run_of(track, "arms", "ohem", 2).directory / "train.json", git_commit=COMMITS[1])
    assert notes(track, "ohem") == (STALE, "Trained with commit bbbbbbbbbb; most of the table: commit aaaaaaaaaa.")
    assert notes(track, "pne") == (STALE,)


def test_claims_mark_what_tables_mark(quick, finish_clean, in_repository):
    claim = Claim(statement="It is so.", paper=["table1"], checks=["miou(contrast_form.pne_r50) > 0"])
    for row in ("base_r50", "base_r101", "pne_r50"):
        finish_clean(run_of(quick, "contrast_form", row))

    def remarks() -> tuple[str, ...]:
        judge = Judge(quick, read_catalogue(Path("experiments")).tables, collect_values(quick, read_results(quick)))
        (outcome,) = judge.outcomes(claim)
        return outcome.remarks

    assert not any("most of the table" in remark for remark in remarks())
    path = run_of(quick, "contrast_form", "pne_r50").directory / "train.json"
    change(path, device="cpu: rare", dataset_fingerprint="other files", code_sha256="0" * 64)
    assert {OTHER_DATA, STALE, f"{OTHER_CPU}: cpu: rare against cpu: common."} < set(remarks())


def test_what_needs_weights_is_not_offered_from_the_archive(tmp_path, in_repository):
    track = archived("quick", tmp_path)
    figures = resolve_figures(track, Path("experiments"))
    assert "the archive has none" in figures["pairs"].reason
    assert {"training_curves", "sweeps", "class_iou"} == {name for name, one in figures.items() if one.available}
    with pytest.raises(UserError, match="the archive holds none; leave out source=archive"):
        features_file(next(iter(track.runs.values())))


def test_gradient_norms_are_weighted_and_relative_to_the_same_seed(arms):
    values = collect_values(arms, read_results(arms)).query("column == 'gradient'").set_index(["row", "seed"])["value"]
    weight = {key: run_of(arms, "arms", key).contrast["weight"] for key in ("pne", "asymmetric")}
    assert values["pne"].tolist() == [1, 1, 1]
    expected = 1.5 * weight["asymmetric"] / weight["pne"]
    assert values["asymmetric"].tolist() == pytest.approx([expected] * 3)
    assert not {"base", "ohem"} & set(values.index.get_level_values("row"))
    change(run_of(arms, "arms", "pne", 2).directory / "train.json", contrast=None)
    lines = collect_values(arms, read_results(arms)).query("column == 'gradient' and row == 'asymmetric'")
    assert lines["value"].notna().tolist() == [True, True, False]
    assert "has no value with this seed" in lines["notes"].iloc[2][0]


@pytest.fixture
def write_findings(monkeypatch: pytest.MonkeyPatch, repository: Path, tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Return a function that writes the findings into another folder and returns document and README."""

    def write(results: Path = tmp_path) -> tuple[str, str]:
        monkeypatch.chdir(tmp_path)
        shutil.copy(repository / "README.md", "README.md")
        assert findings.main(["--results", str(results), "--experiments", str(repository / "experiments")]) == 0
        return Path("docs/findings.md").read_text(), Path("README.md").read_text()

    return write


def test_findings_read_each_primary_contrast(arms, keep, tmp_path, write_findings, repository, capsys):
    assert keep() == 0
    (tmp_path / "archive/camvid_small/run-of-before").mkdir()
    text, readme = write_findings()
    gain = "| PNE − Cross entropy | 3 | +2.20 | [+1.95, +2.45] | 0.002 | **gain** | +3.90 (outside), +2.30 |"
    assert gain in text
    assert "| PNE − Cross entropy | 0.10 | 0.57 |" in text  # 5.67 deviations
    assert "**undetermined** | +1.30 (outside) |" in text
    assert "| OHEM − Cross entropy | 3 | +3.07 |" in text
    assert f"| 0.41 | – | common | – | {COMMITS[0]:.10} | {code_sha256(run_of(arms, 'arms', 'pne')):.12} |" in text
    assert gain in readme
    assert "no such runs now: run-of-before." in text
    assert (tmp_path / "docs/images/findings.png").stat().st_size > 1000
    plan.main(["--track", "quick", "--results", str(tmp_path), "--experiments", str(repository / "experiments")])
    assert "over 3 rows of the archive of track camvid_small." in capsys.readouterr().out


def test_a_seed_that_an_arm_lacks_does_not_count(arms, keep, tmp_path, write_findings):
    assert keep() == 0
    for seed in (0, 1):
        shutil.rmtree(tmp_path / "archive/camvid_small" / run_of(arms, "arms", "ohem", seed).run)
    text, _ = write_findings()
    assert text.count("**not enough seeds**") == 5
    assert "| PNE − OHEM | 1 | −0.90 | – | – | **not enough seeds** | – |" in text
    assert "Seeds that an arm lacks are not counted: 0, 1." in text


def test_a_small_difference_and_a_loss_read_so(arms, keep, write_findings):
    for seed in (0, 1, 2):
        for key, value in {"pne": 52.0, "base": 52.0 + 0.01 * seed, "asymmetric": 54.0 + 0.1 * seed}.items():
            change(run_of(arms, "arms", key, seed).directory / "single_scale.json", miou=value)
    assert keep() == 0
    text, _ = write_findings()
    assert "**smaller than 0.6** | +3.90" in text
    assert "**loss** | +1.30" in text


def test_an_empty_archive_says_so(tmp_path, write_findings):
    text, readme = write_findings()
    assert "Nothing is archived yet." in text
    assert "Nothing is archived yet." in readme
    assert not (tmp_path / "docs/images").exists()


def test_committed_findings_are_what_the_archive_says(write_findings, repository):
    found = write_findings(repository / "results")
    mend = "run python -m analysis.findings and commit what it writes"
    assert found == ((repository / "docs/findings.md").read_text(), (repository / "README.md").read_text()), mend
