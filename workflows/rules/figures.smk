# Figures made from data: features and predictions of trained runs, what is computed from them, and the drawings.
#
# A changed plot is drawn anew from what is stored; only a changed computation computes again.

from analysis.figures import resolve_figures, title_of

try:
    FIGURES = {name: figure for name, figure in resolve_figures(TRACK, Path("experiments")).items() if figure.available}
except UserError as error:
    raise WorkflowError(str(error))


# Whatever has a part in drawing: the figures' own modules and what these take from elsewhere.
DRAWS = [
    *sources("analysis/figures/*.py", "analysis/figures/*.mplstyle"),
    *[f"analysis/{name}" for name in ("latex_text.py", "results.py", "uncertainty.py", "templates/caption.md")],
    *["pne/counts.py", "pne/extract/archives.py"],
]


def features_of(runs):
    return [f"results/{TRACK.name}/features/{run}.npz" for run in runs]


def due_features(runs):
    receipts = []
    for run, archive in zip(runs, features_of(runs), strict=True):
        if due_training(run) or not is_extracted(archive, finished_result(RUNS[run], "train")):
            receipts += wanted("features", run)
    return receipts


def data_folder(figure):
    return f"results/{TRACK.name}/figures/data/{figure}"


@work("map")
def map_work(figure):
    runs = FIGURES[figure].first_seed_runs
    return [f"{data_folder(figure)}/map.npz"], [*features_of(runs), "analysis/figures/tsne.py"], due_features(runs)


@work("selection")
def selection_work(figure):
    runs, only = FIGURES[figure].first_seed_runs, ["single_scale"]
    made_from = [*result_files(runs, only), "analysis/figures/selection.py", "pne/counts.py"]
    return [f"{data_folder(figure)}/selection.json"], made_from, due_results(runs, only)


# By kind of figures that show images: what is extracted for them.
SHOWS = {"pairs": "pairs", "qualitative": "predictions"}


def due_shown(name):
    figure, folder = FIGURES[name], Path(data_folder(name))
    needs = [*due_trainings(figure.first_seed_runs), *due("selection", name)]
    shown = not needs and all(
        is_extracted(folder / f"{run}.npz", finished_result(RUNS[run], "train"), folder / "selection.json")
        for run in figure.first_seed_runs
    )
    return [] if shown else wanted(SHOWS[figure.declaration.kind], name)


@work("figure")
def figure_work(name):
    figure, folder, runs = FIGURES[name], data_folder(name), FIGURES[name].first_seed_runs
    kind = figure.declaration.kind
    if kind in ("tsne_sampling", "tsne_loss"):
        data, needs = [f"{folder}/map.npz"], due("map", name)
    elif kind in ("qualitative", "pairs"):
        data = [f"{folder}/selection.json", *[f"{folder}/{run}.npz" for run in runs]]
        needs = due_shown(name)
    else:
        histories = [f"{run_folder(run)}/history.jsonl" for run in figure.runs if kind == "training_curves"]
        data, needs = [*result_files(figure.runs), *histories], due_results(figure.runs)
    # Titles, labels of rows and published values.
    declared = ["figures", f"tracks/{TRACK.name}", *(f"tables/{part.table.key}" for part in figure.parts)]
    return figure_files(name), [*data, *(f"experiments/{file}.yaml" for file in declared), *DRAWS], needs


def figure_files(name):
    return [f"results/{TRACK.name}/figures/{name}.{suffix}" for suffix in ("pdf", "png", "md")]


# Store the features of a class-balanced sample of pixels of one run.
RUN_RULES["features/{run}"] = (
    "extract_features",
    "extract features of {wildcards.run}",
    data_and_training,
    lambda wildcards: features_of([wildcards.run]),
    f"results/{TRACK.name}/features/{{wildcards.run}}.log python -m pne.extract",
)
LOGS = "results/{track}/figures"
CHOOSE = "choose what {wildcards.name} shows, by the rule that its caption states"
COMMANDS |= {
    kind: (verb, message, log_file, f"python -m analysis.figures {step} {{wildcards.name}} {IDENTITY}")
    for kind, step, verb, message, log_file in [
        ("map", "map", "compute_map", "compute t-SNE for {wildcards.name}", f"{LOGS}/data/{{name}}/map.log"),
        ("selection", "select", "select_for_figure", CHOOSE, f"{LOGS}/data/{{name}}/selection.log"),
        ("figure", "draw", "draw_figure", "draw figure {wildcards.name}", f"{LOGS}/{{name}}.log"),
    ]
}


# Store the chosen predictions, or the pairs that the loss draws, of the runs of a figure.
SHOWN = data_folder("{wildcards.figure}")
for what in SHOWS.values():
    RUN_RULES[f"{what}/{{figure}}"] = (
        f"extract_{what}",
        f"extract {what} for {{wildcards.figure}}",
        lambda wildcards: [*data_and_training(wildcards), *due("selection", wildcards.figure)],
        lambda wildcards: [f"{data_folder(wildcards.figure)}/{run}.npz" for run in runs_behind(wildcards)],
        f"{SHOWN}/{what}.log python -m pne.extract --{what} {SHOWN}/selection.json --out {SHOWN}",
    )


TARGETS |= {f"figure_{name}": lambda wildcards, name=name: due("figure", name) for name in FIGURES}
TARGETS["figures"] = lambda wildcards: all_due("figure", FIGURES)
