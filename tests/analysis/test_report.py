"""The report: pages with the runs behind every cell, and Snakemake's report opened in a browser."""

import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from chromium import browser, look
from samples import made_up_pairs, write_features, write_history

from analysis.claims.__main__ import main as judge_claims
from analysis.figures import SELECTION, data_folder, read_figures, resolve_figures
from analysis.figures.__main__ import main as make_figures
from analysis.report import LOG_LINES, main
from pne.files import sha256
from pne.results import TrainResult, read_result, write_result
from pne.spec import write_spec

WALK = """
const entries = () => [...document.querySelectorAll("nav li a")].filter(a => a.textContent in categories);
for (let i = 0; i < 200 && !entries().length; i++) await wait(100);
noted.menu = entries().map(a => a.textContent);
noted.results = {}; noted.images = [];
for (const name of noted.menu) {
    entries().find(a => a.textContent === name).click(); await wait(300);
    noted.results[name] = {};
    for (let i = 0; i < document.querySelectorAll("nav tbody tr").length; i++) {
        const row = document.querySelectorAll("nav tbody tr")[i];
        const label = row.querySelector("td").textContent, [view, info] = row.querySelectorAll("a");
        view.click(); await wait(500);
        noted.images.push(...[...document.images].map(image => image.complete && image.naturalWidth > 0));
        const image = document.querySelector("div.p-3 > img"), frame = document.querySelector("iframe");
        noted.results[name][label] = {
            image: image ? image.naturalWidth : 0,
            page: frame ? new TextDecoder().decode(await (await fetch(frame.src)).arrayBuffer()) : "",
        };
    }
    document.querySelector("nav ol a").click(); await wait(300);
}
"""


@pytest.fixture
def finished(quick, finish) -> None:
    """Made-up results of the runs of one table, with logs."""
    for row in quick.tables["contrast_form"].rows.values():
        for run in row.runs.values():
            spec = quick.runs[run]
            write_spec(spec, quick.config(run))
            finish(spec, miou=41.5)
            log = "".join(f"line {number} <of> {run}\n" for number in range(100))
            (spec.directory / "log").write_text(log)


@pytest.fixture
def page(options, tmp_path) -> Callable[[str], str]:
    """Return a function that writes a page and reads it: it needs no other file, and its links lead somewhere."""

    def write(name: str) -> str:
        assert main(["--page", name, *options]) == 0
        text = (tmp_path / "quick" / "report" / f"{name}.html").read_text()
        assert not re.findall(r"""(?:src|href)=["'](?!#)""", text)
        assert set(re.findall(r'href="#([^"]+)"', text)) <= set(re.findall(r'id="([^"]+)"', text))
        return text

    return write


def test_every_measured_cell_leads_to_its_runs(finished, quick, page):
    page = page("contrast_form")
    for key, row in quick.tables["contrast_form"].rows.items():
        assert page.count(f'<a href="#row-{key}">') == 1
        section = page[page.index(f'<section id="row-{key}">') :]
        section = html.unescape(section[: section.index("</section>")])
        for run in row.runs.values():
            spec = quick.runs[run]
            assert f"python -m pne.train {spec.directory / 'spec.yaml'}" in section
            assert spec.config_sha256 in section  # spec.yaml
            assert "optim_wrapper = {" in section  # config.py
            assert f"line 99 <of> {run}" in section
            assert f"line {99 - LOG_LINES} <of>" not in section
            assert "training: code sha256" in section
            assert "41.50" in section
    assert "published" in page
    assert "80.3" in page
    assert "<of>" not in page  # texts are escaped


def test_missing_results_are_named_on_the_page(quick, page):
    row = quick.tables["contrast_form"].rows["pne_r50"]
    for other in quick.tables["contrast_form"].rows.values():
        for run in other.runs.values():
            write_spec(quick.runs[run], quick.config(run))
    page = page("contrast_form")
    assert "the run has not finished" in page
    assert next(iter(row.runs.values())) in page


def test_a_result_of_other_settings_is_named_on_the_page_in_place_of_its_numbers(finished, quick, page):
    (run,) = quick.tables["contrast_form"].rows["pne_r50"].runs.values()
    path = quick.runs[run].directory / "train.json"
    write_result(path, read_result(path, TrainResult).model_copy(update={"config_sha256": "0" * 64}))
    assert page("contrast_form").count("it was measured with other settings") == 1


def test_an_unknown_page_and_claims_that_are_not_there_are_clear_errors(options, tmp_path, capsys):
    assert main(["--page", "contrast", *options]) == 2
    assert "no table 'contrast'; allowed:" in capsys.readouterr().err
    assert main(["--page", "claims", *options]) == 2
    assert "`snakemake claims` makes them" in capsys.readouterr().err
    path = tmp_path / "quick" / "claims" / "claims.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"track": "quick", "claims": {}}')
    assert main(["--page", "claims", *options]) == 2
    assert "another version of this project; `snakemake claims` makes them anew" in capsys.readouterr().err


FIGURES = {"pairs": "Own: embedding", "class_iou": "Table 2: city-val", "sweeps": "Table 8: table4"}
PAGES = {"contrast_form": "Table 5: table1", "embedding": "Own: embedding", "claims": "Claims"}


@pytest.fixture
def complete(quick, finish, options) -> None:
    """Made-up results of every run, and what the figures need from trained networks."""
    for run, spec in quick.runs.items():
        write_spec(spec, quick.config(run))
        finish(spec)
        write_history(spec)
    write_features(quick)
    assert make_figures(["select", "pairs", *options]) == 0
    figures = resolve_figures(quick, Path("experiments"))
    folder, run, pairs = data_folder(figures["pairs"], quick), figures["pairs"].first_seed_runs[0], made_up_pairs()
    weights = read_result(quick.runs[run].directory / "train.json", TrainResult).weights_sha256
    pairs.about |= {"run": run, "weights_sha256": weights, "selection_sha256": sha256(folder / SELECTION)}
    pairs.write(folder / f"{run}.npz")


@pytest.fixture
def checkout(tmp_path, complete, repository) -> Path:
    """A copy of the project that holds the made-up results where the workflow expects them."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("Snakefile", "workflows", "experiments", "analysis", "pne"):
        source = repository / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)
    shutil.copytree(tmp_path / "quick", folder / "results" / "quick")
    for spec in (folder / "results" / "quick" / "runs").glob("*/spec.yaml"):
        spec.write_text(spec.read_text().replace(str(tmp_path / "quick"), "results/quick"))
    return folder


def test_the_report_opens_without_errors_and_its_table_of_contents_works(checkout, quick):
    browser()
    for dataset in quick.declaration.datasets.values():
        marker = checkout / quick.declaration.data_root / dataset.folder / "meta.json"
        marker.parent.mkdir(parents=True)
        marker.write_text("{}\n")
    pages = {name: f"results/quick/report/{name}.html" for name in PAGES}
    targets = [*pages.values(), *(f"results/quick/report/{name}.png" for name in FIGURES)]
    chosen = ["--cores", "1", "results/quick/receipts/selection/pairs"]  # what the pairs above were made for
    for arguments in (chosen, ["--cores", "2", *targets], ["--report", "report.html", *targets]):
        command = [sys.executable, "-m", "snakemake", "--snakefile", "Snakefile", *arguments]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not re.search(r"rule (train|evaluate|extract_\w+):", done.stdout + done.stderr)
    noted = look(checkout / "report.html", WALK)
    assert noted["errors"] == []
    assert set(noted["menu"]) == {*FIGURES.values(), *PAGES.values()}
    declared = read_figures(Path("experiments"))
    for name, category in FIGURES.items():
        assert noted["results"][category][f"Figure: {declared[name].title}"]["image"] > 500, name
    assert len(noted["images"]) >= len(FIGURES)
    assert all(noted["images"])
    for name, category in PAGES.items():
        label = "Claims of the paper" if name == "claims" else "Table, with the runs behind every cell"
        assert noted["results"][category][label]["page"] == (checkout / pages[name]).read_text()
    for name in PAGES:
        found = look(checkout / pages[name], FOLLOW)
        assert found["errors"] == []
        assert found["cut"] == 0, name
        assert len(found["links"]) >= 6
        assert all(found for _, found in found["links"])


FOLLOW = """
noted.cut = Math.max(0, document.documentElement.scrollWidth - window.innerWidth);
noted.links = [...document.querySelectorAll("td a")].map(a => {
    a.click();
    return [location.hash, document.querySelector(":target") !== null];
});
"""


def test_the_page_of_the_claims_says_what_the_verdicts_are_and_leads_to_the_runs(
    complete, quick, tmp_path, options, page
):
    assert judge_claims(options) == 0
    page = html.unescape(page("claims"))
    content = json.loads((tmp_path / "quick" / "claims" / "claims.json").read_text())
    assert all(f"<b>{verdict}</b>: {meaning}" in page for verdict, meaning in content["explanations"].items())
    for key, claim in content["claims"].items():
        section = page[page.index(f'<section id="claim-{key}">') :]
        section = section[: section.index("</section>")]
        assert claim["statement"] in section
        assert (claim["note"] or "") in section
        for check in claim["checks"]:
            assert check["measured_text"] in section
            assert f"<code>{check['expression']}</code>" in section
            assert f">{check['verdict']}</span>" in section
    assert ">not enough seeds</span>" not in page  # a stand-in's verdict names its data
    assert f">on {quick.declaration.title}: not enough seeds</span>" in page
    assert not re.search(r"\d\.\d{6}", page[: page.index("Runs behind the numbers")])  # rounded
    for cell in content["claims"]["gains_on_ade20k"]["checks"][0]["cells"]:
        (run,) = quick.tables[cell["table"]].rows[cell["row"]].runs.values()
        assert f'<a href="#run-{run}">{cell["row"]}</a>' in page
        assert page.count(f'id="run-{run}"') == 1


def test_claims_without_runs_have_no_links(options, page):
    assert judge_claims(options) == 0
    page = page("claims")
    assert "not measured" in page
    assert 'href="#run-' not in page
