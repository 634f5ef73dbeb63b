# Pages of the report. ``make report`` builds them and then Snakemake's own report, one HTML file with everything.


report: "../report/workflow.rst"


PAGE_TEMPLATES = [f"analysis/templates/{name}.html" for name in ("base", "runs", "page", "claims")]


PAGES = {name: (title_of(TRACK.tables[name]), "Table, with the runs behind every cell") for name in TABLES}
PAGES["claims"] = ("Claims", "Claims of the paper")


def report_file(name):
    return f"results/{TRACK.name}/report/{name}"


# Pages and images may be outputs, as Snakemake's report demands: they are made of results alone.
@work("page")
def page_work(name):
    if name == "claims":
        made_from = [CLAIMS[-1], f"experiments/tracks/{TRACK.name}.yaml", *ANALYSIS]
        needs = due("claims", "claims")
    else:
        made, made_from, _ = WORK["table"](name)
        made_from, needs = [*made, *made_from], due("table", name)
    return [report_file(f"{name}.html")], [*made_from, *PAGE_TEMPLATES], needs


@work("image")
def image_work(name):
    return [report_file(f"{name}.png")], figure_files(name), due("figure", name)


def report_files(wildcards):
    # Due or not, as Snakemake's report shows what its graph holds; receipts too, as a file that exists is no work.
    files = [f"{name}.html" for name in PAGES] + [f"{name}.png" for name in FIGURES]
    return [*all_due("page", PAGES), *all_due("image", FIGURES), *map(report_file, files)]


rule page:
    """Write one table, with the runs behind every cell, or the claims as a page."""
    input:
        needs_of("page"),
    output:
        "results/{track}/receipts/page/{name}",
        report(
            "results/{track}/report/{name}.html",
            category=lambda wildcards: PAGES[wildcards.name][0],
            caption="../report/page.rst",
            labels=lambda wildcards: {"result": PAGES[wildcards.name][1]},
        ),
    log:
        "results/{track}/report/{name}.log",
    wildcard_constraints:
        name="|".join(PAGES),
    localrule: True
    params:
        files=files_of("page"),
    message:
        "write the report's page {wildcards.name}"
    shell:
        f"{BEFORE}; python -m analysis.report --page {{wildcards.name}} {IDENTITY} > {{log:q}} 2>&1; {RECEIPT}"


rule figure_image:
    """Copy a figure's image for the report."""
    input:
        needs_of("image"),
    output:
        "results/{track}/receipts/image/{name}",
        report(
            "results/{track}/report/{name}.png",
            category=lambda wildcards: title_of(FIGURES[wildcards.name].parts[0].table),
            caption="../report/figure.rst",
            labels=lambda wildcards: {"result": f"Figure: {FIGURES[wildcards.name].declaration.title}"},
        ),
    localrule: True
    params:
        files=files_of("image"),
    message:
        "show figure {wildcards.name} in the report"
    shell:
        f"cp {{params.files[3]:q}} {{output[1]:q}}; {RECEIPT}"


TARGETS["report_pages"] = report_files
