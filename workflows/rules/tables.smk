# Tables, claims and the paper's own tables: made from result files, never a reason to train.

FORMATS = ("tex", "csv", "md")
CLAIMS = [f"results/{TRACK.name}/claims/claims.{suffix}" for suffix in ("md", "csv", "json")]
PRINTS = [*ANALYSIS, *(f"analysis/templates/{name}" for name in ("table.tex", "table.md", "tables.tex"))]
# Scores entered by hand; a table is printed anew when they change.
EXTERNAL = [path for path in ["experiments/external.yaml"] if Path(path).exists()]
# Tables that the jobs of this call lead to; filled while Snakemake collects the inputs of rule `table`.
REQUESTED = set()


def table_files(name, track=TRACK.name):
    return [f"results/{track}/tables/{name}.{suffix}" for suffix in FORMATS]


def requested_results(wildcards):
    # What a table is made from: results, which may be there in part, or the features of every run.
    table = TRACK.tables[wildcards.table]
    if table.key == EMBEDDING:
        return features_of(runs_of(table))
    REQUESTED.add(table.key)
    return results_of(runs_of(table), table.declaration.evaluations)


def render_partial_tables():
    # Print the requested tables from what there is.
    folder = Path("results", TRACK.name, "tables")
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(REQUESTED):
        shell(f"python -m analysis.tables {IDENTITY} --table {name} > {folder / name}.log 2>&1")


def print_results():
    folder = Path("results", TRACK.name)
    for kind in ("tables", "figures", "claims"):
        files = sorted(path for path in (folder / kind).glob("*") if path.suffix in (".md", ".pdf"))
        if files:
            print(f"{folder / kind}: {', '.join(path.name for path in files)}", file=sys.stderr)


rule table:
    """Print one table: published and measured side by side."""
    input:
        results=requested_results,
        retrained=lambda wildcards: retrained(runs_of(TRACK.tables[wildcards.table])),
        declarations=["experiments/tables/{table}.yaml", f"experiments/tracks/{TRACK.name}.yaml", *EXTERNAL],
        scripts=PRINTS,
    output:
        [ensure(file, non_empty=True) for file in table_files("{table}", "{track}")],
    log:
        "results/{track}/tables/{table}.log",
    localrule: True
    params:
        options=IDENTITY,
    message:
        "print table {wildcards.table}"
    shell:
        "python -m analysis.tables {params.options} --table {wildcards.table} > {log:q} 2>&1"


rule published_table:
    """Print one table as the paper prints it."""
    input:
        declaration="experiments/tables/{table}.yaml",
        scripts=PRINTS,
    output:
        [ensure(file, non_empty=True) for file in table_files("{table}", "published")],
    log:
        "results/published/tables/{table}.log",
    localrule: True
    message:
        "print table {wildcards.table} as published"
    shell:
        "python -m analysis.tables --published --table {wildcards.table} > {log:q} 2>&1"


rule judge:
    """Judge each claim of the paper."""
    input:
        results=results_of(PRINTED),
        retrained=retrained(PRINTED),
        declarations=["experiments/claims.yaml", *EXTERNAL],
        scripts=[*ANALYSIS, "analysis/templates/claims.md"],
    output:
        [ensure(file, non_empty=True) for file in CLAIMS],
    log:
        f"results/{TRACK.name}/claims/claims.log",
    localrule: True
    params:
        options=IDENTITY,
        # Judged anew after table embedding was made, but never a reason to make it: that needs weights.
        embedding=[path.stat().st_mtime for path in map(Path, table_files(EMBEDDING)) if path.exists()],
    message:
        "judge the claims of the paper"
    shell:
        "python -m analysis.claims {params.options} > {log:q} 2>&1"


def refuse(table):
    # Return an input function that says why a track has no such table, once somebody asks for it.

    def raise_reason(wildcards):
        raise WorkflowError(
            f"track {TRACK.name} does not offer table {table.key}: {table.reason}; it offers {', '.join(OFFERED)}"
        )

    return raise_reason


TARGETS |= {
    f"table_{name}": (
        [*table_files(name), *complete(runs_of(table), table.declaration.evaluations)]
        if table.available
        else refuse(table)
    )
    for name, table in TRACK.tables.items()
}
TARGETS["tables"] = [*map(table_files, TABLES), *complete(PRINTED)]
TARGETS["studies"] = [TARGETS[f"table_{name}"] for name in STUDIES]
TARGETS["claims"] = [*CLAIMS, *complete(PRINTED)]
TARGETS["published"] = [
    table_files(name, "published") for name, table in TRACK.tables.items() if table.declaration.paper
]
