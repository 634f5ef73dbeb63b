# Tables, claims and the paper's own tables: made from result files.

FORMATS = ("tex", "csv", "md")
CLAIMS = [f"results/{TRACK.name}/claims/claims.{suffix}" for suffix in ("md", "csv", "json")]
PRINTS = [*ANALYSIS, *(f"analysis/templates/{name}" for name in ("table.tex", "table.md", "tables.tex"))]


def table_files(name, track=TRACK.name):
    return [f"results/{track}/tables/{name}.{suffix}" for suffix in FORMATS]


@work("table")
def table_work(name):
    table = TRACK.tables[name]
    runs, evaluations = runs_of(table), table.declaration.evaluations
    if name == EMBEDDING:
        results, needs = features_of(runs), due_features(runs)
    else:
        results, needs = result_files(runs, evaluations), due_results(runs, evaluations)
    declared = [f"experiments/tables/{name}.yaml", f"experiments/tracks/{TRACK.name}.yaml", *EXTERNAL]
    return table_files(name), [*results, *declared, *PRINTS], needs


def render_partial_tables():
    # Print the tables that this call should have made from what there is.
    folder = Path("results", TRACK.name, "tables")
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted({name[0] for kind, *name in WANTED if kind == "table"} - {EMBEDDING}):
        shell(f"python -m analysis.tables {IDENTITY} --table {name} > {folder}/{name}.log 2>&1")


def print_results():
    folder = Path("results", TRACK.name)
    for kind in ("tables", "figures", "claims"):
        files = sorted(path for path in (folder / kind).glob("*") if path.suffix in (".md", ".pdf"))
        if files:
            print(f"{folder}/{kind}: {', '.join(path.name for path in files)}", file=sys.stderr)


COMMANDS["table"] = (
    "table",
    "print table {wildcards.name}",
    "results/{track}/tables/{name}.log",
    f"python -m analysis.tables {IDENTITY} --table {{wildcards.name}}",
)


OF_PAPER = {name: f"experiments/tables/{name}.yaml" for name, table in TRACK.tables.items() if table.declaration.paper}
PUBLISHED = [file for name in OF_PAPER for file in table_files(name, "published")]
WORK["published"] = lambda name: (PUBLISHED, [*OF_PAPER.values(), *PRINTS], [])


COMMANDS["published"] = (
    "published_tables",
    "print the tables as published",
    "results/{track}/tables/{name}-published.log",
    "python -m analysis.tables --published",
)


@work("claims")
def claims_work(name):
    declared = ["experiments/claims.yaml", f"experiments/tracks/{TRACK.name}.yaml", *EXTERNAL]
    made_from = [*result_files(PRINTED), f"results/{TRACK.name}/tables/{EMBEDDING}.csv", *declared, *ANALYSIS]
    # After table embedding where this call makes it, but never a reason to make it: that needs weights.
    asked = {*workflow.dag_settings.targets} & {"tables", f"table_{EMBEDDING}", "report_pages"}
    needs = [*due_results(PRINTED), *all_due("table", {EMBEDDING} & {*TABLES} if asked else ())]
    return CLAIMS, [*made_from, "analysis/templates/claims.md"], needs


COMMANDS["claims"] = (
    "judge",
    "judge the claims of the paper",
    "results/{track}/claims/{name}.log",
    f"python -m analysis.claims {IDENTITY}",
)


def refuse(table):
    # Return an input function that says why a track has no such table, once somebody asks for it.

    def raise_reason(wildcards):
        raise WorkflowError(
            f"track {TRACK.name} does not offer table {table.key}: {table.reason}; it offers {', '.join(OFFERED)}"
        )

    return raise_reason


TARGETS |= {
    f"table_{name}": (lambda wildcards, name=name: due("table", name)) if table.available else refuse(table)
    for name, table in TRACK.tables.items()
}
TARGETS["tables"] = lambda wildcards: [*all_due("table", TABLES), *due_results(PRINTED)]
TARGETS["studies"] = lambda wildcards: all_due("table", STUDIES)
TARGETS["claims"] = lambda wildcards: due("claims", "claims")
TARGETS["published"] = lambda wildcards: due("published", "paper")
