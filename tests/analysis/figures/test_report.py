"""The report: pages with the runs behind every cell, and Snakemake's report opened in a browser."""

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from chromium import browser, look

from analysis.report import main
from analysis.run_details import LOG_LINES
from pne.spec import write_spec

WALK = """
const entries = () => [...document.querySelectorAll("nav li a")].filter(a => a.textContent in categories);
for (let i = 0; i < 200 && !entries().length; i++) await wait(100);
noted.menu = entries().map(a => a.textContent);
noted.results = {};
for (const name of noted.menu) {
    entries().find(a => a.textContent === name).click(); await wait(300);
    noted.results[name] = {};
    for (let i = 0; i < document.querySelectorAll("nav tbody tr").length; i++) {
        const row = document.querySelectorAll("nav tbody tr")[i];
        const label = row.querySelector("td").textContent, [view, info] = row.querySelectorAll("a");
        view.click(); await wait(500);
        const image = document.querySelector("div.p-3 > img"), frame = document.querySelector("iframe");
        noted.results[name][label] = {
            image: image ? image.naturalWidth : 0,
            page: frame ? new TextDecoder().decode(await (await fetch(frame.src)).arrayBuffer()) : "",
        };
    }
    document.querySelector("nav ol a").click(); await wait(300);
}
noted.images = [...document.images].map(image => image.complete && image.naturalWidth > 0);
"""


@pytest.fixture
def finished(quick, finish, tmp_path):
    """Made-up results of the runs of one table, with logs; returns the options of the command."""
    for row in quick.tables["contrast_form"].rows.values():
        for run in row.runs.values():
            spec = quick.runs[run]
            write_spec(spec, quick.config(run))
            finish(spec, miou=41.5)
            log = "".join(f"line {number} <of> {run}\n" for number in range(100))
            (spec.directory / "log").write_text(log)
    return ["--track", "quick", "--results", str(tmp_path)]


def test_every_measured_cell_leads_to_its_runs(finished, quick, tmp_path):
    assert main(["--page", "contrast_form", *finished]) == 0
    page = (tmp_path / "quick" / "report" / "contrast_form.html").read_text()
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


def test_a_page_needs_no_other_file_and_its_links_lead_somewhere(finished, tmp_path):
    main(["--page", "contrast_form", *finished])
    page = (tmp_path / "quick" / "report" / "contrast_form.html").read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", page)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'id="([^"]+)"', page))


def test_missing_results_are_named_on_the_page(quick, tmp_path):
    row = quick.tables["contrast_form"].rows["pne_r50"]
    for other in quick.tables["contrast_form"].rows.values():
        for run in other.runs.values():
            write_spec(quick.runs[run], quick.config(run))
    assert main(["--page", "contrast_form", "--track", "quick", "--results", str(tmp_path)]) == 0
    page = (tmp_path / "quick" / "report" / "contrast_form.html").read_text()
    assert "the run has not finished" in page
    assert next(iter(row.runs.values())) in page


def test_an_unknown_page_is_a_clear_error(finished, capsys):
    assert main(["--page", "contrast", *finished]) == 2
    assert "no table 'contrast'; allowed:" in capsys.readouterr().err
    assert main(["--page", "claims", *finished]) == 2
    assert "`snakemake claims` makes them" in capsys.readouterr().err


@pytest.fixture
def checkout(tmp_path, finished, repository) -> Path:
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
    for row in quick.tables["embedding"].rows.values():  # the curves of these runs
        for run in row.runs.values():
            folder = checkout / "results" / "quick" / "runs" / run
            if not (folder / "train.json").exists():
                spec = next((checkout / "results" / "quick" / "runs").glob("*pne-s0*"))
                shutil.copytree(spec, folder, dirs_exist_ok=True)
                for path in folder.glob("*.json"):
                    path.write_text(path.read_text().replace(spec.name, run))
            lines = [{"iter": i, "decode.loss_ce": 1 / i, "loss_contrast": 0.5} for i in (10, 20)]
            (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for dataset in quick.declaration.datasets.values():
        marker = checkout / quick.declaration.data_root / dataset.folder / "meta.json"
        marker.parent.mkdir(parents=True)
        marker.write_text("{}\n")
    for evaluation in (checkout / "results" / "quick" / "runs").glob("*/multi_scale_flip.json"):
        evaluation.touch()  # it comes after the training
    targets = ["results/quick/report/contrast_form.html", "results/quick/figures/training_curves.png"]
    for arguments in (["--cores", "1", *targets], ["--report", "report.html", *targets]):
        command = [sys.executable, "-m", "snakemake", "--snakefile", "Snakefile", *arguments]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "rule train:" not in done.stdout + done.stderr
    noted = look(checkout / "report.html", WALK)
    assert noted["errors"] == []
    assert noted["menu"] == ["Own: embedding", "Table 5: table1"]
    assert all(noted["images"])
    figure = noted["results"]["Own: embedding"]["Figure: Loss terms and pairs during training"]
    assert figure["image"] > 1000
    page = noted["results"]["Table 5: table1"]["Table, with the runs behind every cell"]["page"]
    assert page == (checkout / targets[0]).read_text()
    links = look(
        checkout / targets[0],
        """
        noted.links = [...document.querySelectorAll("td a")].map(a => {
            a.click();
            return [location.hash, document.querySelector(":target") !== null];
        });
        """,
    )
    assert links["errors"] == []
    assert len(links["links"]) == 6
    assert all(found for _, found in links["links"])
