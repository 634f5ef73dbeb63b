# Data sets: drawn where they are synthetic, examined where they are real.

import hashlib

from pne.datasets.prepare import PREPARED

DATA_ROOT = Path(OPTIONS.data_root or TRACK.declaration.data_root)
DATASETS = TRACK.declaration.datasets
SUBSET = "--subset" if OPTIONS.subset else ""
if OPTIONS.data_root and not DATA_ROOT.is_dir() and workflow.is_main_process:
    print(f"data_root={DATA_ROOT}: no such folder on this machine", file=sys.stderr)


def is_drawn(name):
    return DATASETS[name].layout.startswith("street_")


def dataset_file(name):
    # File that says that a data set is there.
    folder = DATA_ROOT / DATASETS[name].folder
    if is_drawn(name):
        return str(folder / "meta.json")
    # One report a folder: another data_root is examined before anything trains on it.
    place = hashlib.sha256(f"{folder.resolve()} {SUBSET}".encode()).hexdigest()[:8]
    return f"results/{TRACK.name}/data/{name}-{place}.json"


DRAW = "python -m pne.datasets.synthetic_street --variant {params.layout} --out {params.folder:q} > {log:q} 2>&1"
EXAMINE = (
    "python -m pne.datasets.doctor --dataset {params.layout} --data-root {params.folder:q} {params.subset}"
    " --workers {threads} --report {output:q} > {log:q} 2>&1"
)


for name, dataset in DATASETS.items():
    drawn = is_drawn(name)

    rule:
        name:
            f"{'draw' if drawn else 'examine'}_{name}"
        output:
            dataset_file(name),
        log:
            f"results/{TRACK.name}/data/{name}.log",
        # What is wrong with files does not mend itself: they are examined once, whatever the profile says.
        retries: 0
        localrule: drawn
        threads: 1 if drawn else 8
        params:
            layout=dataset.layout,
            folder=DATA_ROOT / dataset.folder,
            subset=SUBSET,
        message:
            f"{'draw' if drawn else 'examine'} the data set {dataset.title}"
        shell:
            DRAW if drawn else EXAMINE

    if dataset.layout in PREPARED:

        rule:
            name:
                f"prepare_{name}"
            log:
                f"results/{TRACK.name}/data/prepare_{name}.log",
            localrule: True
            threads: 4
            params:
                layout=dataset.layout,
                folder=DATA_ROOT / dataset.folder,
            message:
                f"convert the labels of {dataset.title}"
            shell:
                "python -m pne.datasets.prepare {params.layout} --data-root {params.folder:q} --workers {threads} > {log:q} 2>&1"


TARGETS["data"] = [dataset_file(name) for name in DATASETS]
