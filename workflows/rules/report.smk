# Pages of the report. ``make report`` builds them and then Snakemake's own report, one HTML file with everything.


report: "../report/workflow.rst"


PAGE_TEMPLATES = [f"analysis/templates/{name}.html" for name in ("base", "runs", "page", "claims")]


rule table_page:
    """Write one table with the runs behind every cell."""
    input:
        table=lambda wildcards: f"results/{TRACK.name}/tables/{wildcards.table}.csv",
        results=lambda wildcards: results_of(runs_of(TRACK.tables[wildcards.table])),
        scripts=[*ANALYSIS, *PAGE_TEMPLATES],
    output:
        report(
            "results/{track}/report/{table}.html",
            category=lambda wildcards: title_of(TRACK.tables[wildcards.table]),
            caption="../report/table.rst",
            labels={"result": "Table, with the runs behind every cell"},
        ),
    log:
        "results/{track}/report/{table}.log",
    wildcard_constraints:
        table="|".join(TABLES),
    localrule: True
    params:
        options=IDENTITY,
    message:
        "write the report's page of table {wildcards.table}"
    shell:
        "python -m analysis.report --page {wildcards.table} {params.options} > {log:q} 2>&1"


rule claims_page:
    """Write the claims as a page."""
    input:
        claims="results/{track}/claims/claims.json",
        scripts=[*ANALYSIS, *PAGE_TEMPLATES],
    output:
        report(
            "results/{track}/report/claims.html",
            category="Claims",
            caption="../report/claims.rst",
            labels={"result": "Claims of the paper"},
        ),
    log:
        "results/{track}/report/claims.log",
    localrule: True
    params:
        options=IDENTITY,
    message:
        "write the report's page of the claims"
    shell:
        "python -m analysis.report --page claims {params.options} > {log:q} 2>&1"


TARGETS["report_pages"] = [
    *(f"results/{TRACK.name}/report/{name}.html" for name in (*TABLES, "claims")),
    *map(figure_files, FIGURES),
]
