# Figures made from data: features and predictions of trained runs, what is computed from them, and the drawings.
#
# A changed plot is drawn anew from what is stored; only a changed computation computes again, and nothing here trains
# a run that is trained.

from analysis.figures import resolve_figures, title_of

try:
    FIGURES = {name: figure for name, figure in resolve_figures(TRACK, Path("experiments")).items() if figure.available}
except UserError as error:
    raise WorkflowError(str(error))


def figures_of(*kinds):
    # Regular expression of the names of all figures of some kinds.
    names = [name for name, figure in FIGURES.items() if figure.declaration.kind in kinds]
    return "|".join(names) or "none_of_this_track"


# Whatever has a part in drawing: the figures' own modules and what these take from elsewhere.
DRAWS = [
    *sources("analysis/figures/*.py", "analysis/figures/*.mplstyle"),
    *[f"analysis/{name}" for name in ("latex_text.py", "results.py", "uncertainty.py", "templates/caption.md")],
    *["pne/counts.py", "pne/extract/archives.py"],
]


def declarations_of(name):
    # Declarations behind a drawing: titles, labels of rows and published values.
    tables = [f"experiments/tables/{part.table.key}.yaml" for part in FIGURES[name].parts]
    return ["experiments/figures.yaml", f"experiments/tracks/{TRACK.name}.yaml", *tables]


def features_of(runs):
    return [f"results/{TRACK.name}/features/{run}.npz" for run in runs]


def first_runs(wildcards):
    return FIGURES[wildcards.figure].first_seed_runs


def figure_files(name):
    return [f"results/{TRACK.name}/figures/{name}.{suffix}" for suffix in ("pdf", "png", "md")]


def figure_inputs(wildcards):
    # What a drawing reads.
    figure = FIGURES[wildcards.figure]
    folder = f"results/{TRACK.name}/figures/data/{figure.name}"
    kind = figure.declaration.kind
    if kind in ("tsne_sampling", "tsne_loss"):
        return [f"{folder}/map.npz"]
    if kind in ("qualitative", "pairs"):
        return [f"{folder}/selection.json", *[f"{folder}/{run}.npz" for run in figure.first_seed_runs]]
    return results_of(figure.runs)


rule extract_features:
    """Store the features of a class-balanced sample of pixels of one run."""
    input:
        spec=ancient(SPEC),
        trained="results/{track}/runs/{run}/train.json",
        retrained=lambda wildcards: retrained([wildcards.run]),
    output:
        ensure("results/{track}/features/{run}.npz", non_empty=True),
    log:
        "results/{track}/features/{run}.log",
    threads: cores
    resources:
        **NEEDS_OF_RUN,
    message:
        "extract features of {wildcards.run}"
    shell:
        "python -m pne.extract {input.spec:q} > {log:q} 2>&1"


rule compute_map:
    """Compute t-SNE coordinates; a changed plot leaves them as they are."""
    input:
        features=lambda wildcards: features_of(first_runs(wildcards)),
        scripts="analysis/figures/tsne.py",
    output:
        ensure("results/{track}/figures/data/{figure}/map.npz", non_empty=True),
    log:
        "results/{track}/figures/data/{figure}/map.log",
    wildcard_constraints:
        figure=figures_of("tsne_sampling", "tsne_loss"),
    params:
        options=IDENTITY,
        runs=first_runs,  # other rows in the declaration compute anew, another title does not
    message:
        "compute t-SNE for {wildcards.figure}"
    shell:
        "python -m analysis.figures map {wildcards.figure} {params.options} > {log:q} 2>&1"


rule select_for_figure:
    """Choose the images or the confusion to show, by the rule that the caption states."""
    input:
        results=lambda wildcards: [
            f"results/{TRACK.name}/runs/{run}/single_scale.json" for run in first_runs(wildcards)
        ],
        retrained=lambda wildcards: retrained(first_runs(wildcards)),
        scripts=["analysis/figures/selection.py", "pne/counts.py"],
    output:
        ensure("results/{track}/figures/data/{figure}/selection.json", non_empty=True),
    log:
        "results/{track}/figures/data/{figure}/selection.log",
    wildcard_constraints:
        figure=figures_of("qualitative", "pairs"),
    localrule: True
    params:
        options=IDENTITY,
        runs=first_runs,
    message:
        "choose what {wildcards.figure} shows"
    shell:
        "python -m analysis.figures select {wildcards.figure} {params.options} > {log:q} 2>&1"


rule extract_for_figure:
    """Store the chosen predictions, or the pairs that the loss draws, of one run."""
    input:
        spec=ancient(SPEC),
        trained="results/{track}/runs/{run}/train.json",
        selection="results/{track}/figures/data/{figure}/selection.json",
    output:
        ensure("results/{track}/figures/data/{figure}/{run}.npz", non_empty=True),
    log:
        "results/{track}/figures/data/{figure}/{run}.log",
    wildcard_constraints:
        figure=figures_of("qualitative", "pairs"),
    threads: cores
    resources:
        **NEEDS_OF_RUN,
    params:
        what=lambda wildcards: "pairs" if FIGURES[wildcards.figure].declaration.kind == "pairs" else "predictions",
    message:
        "extract {params.what} of {wildcards.run} for {wildcards.figure}"
    shell:
        "python -m pne.extract --{params.what} {input.selection:q} --out $(dirname {output:q}) {input.spec:q}"
        " > {log:q} 2>&1"


rule draw_figure:
    """Draw one figure and write its caption."""
    input:
        data=figure_inputs,
        declarations=lambda wildcards: declarations_of(wildcards.figure),
        scripts=DRAWS,
    output:
        pdf=ensure("results/{track}/figures/{figure}.pdf", non_empty=True),
        png=report(
            "results/{track}/figures/{figure}.png",
            category=lambda wildcards: title_of(FIGURES[wildcards.figure].parts[0].table),
            caption="../report/figure.rst",
            labels=lambda wildcards: {"result": f"Figure: {FIGURES[wildcards.figure].declaration.title}"},
        ),
        caption=ensure("results/{track}/figures/{figure}.md", non_empty=True),
    log:
        "results/{track}/figures/{figure}.log",
    wildcard_constraints:
        figure="[a-z0-9_]+",
    localrule: True
    params:
        options=IDENTITY,
    message:
        "draw figure {wildcards.figure}"
    shell:
        "python -m analysis.figures draw {wildcards.figure} {params.options} > {log:q} 2>&1"


FIGURE_TARGETS = {f"figure_{name}": [*figure_files(name), *complete(figure.runs)] for name, figure in FIGURES.items()}
TARGETS |= {**FIGURE_TARGETS, "figures": list(FIGURE_TARGETS.values())}
