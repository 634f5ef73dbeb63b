"""The settings table's measured side: what the resolved configs really say, so that it cannot drift from the runs."""

from collections.abc import Mapping
from typing import Any

from pne.declaration.build import RunConfig
from pne.declaration.schema import Table
from pne.spec import Run

Values = list[tuple[float, list[str]]]


def read_settings(
    table: Table, runs: Mapping[str, Run], configs: Mapping[str, RunConfig]
) -> dict[str, dict[str, Values]]:
    """Read every cell of a settings table from the configs of all runs on the column's data set.

    Parameters
    ----------
    table : Table
        With layout settings: the keys of setting columns are data sets, rows say what they read.
    runs, configs : Mapping
        By identifier.

    Returns
    -------
    dict of dict of list
        By row and column: each value with the models that train with it, the value of most models first.
    """
    columns = [name for name, column in table.columns.items() if column.kind == "setting"]
    return {
        key: {column: _values(str(row.reads), column, runs, configs) for column in columns}
        for key, row in table.rows.items()
    }


def _values(setting: str, dataset: str, runs: Mapping[str, Run], configs: Mapping[str, RunConfig]) -> Values:
    models: dict[float, list[str]] = {}
    for name, run in runs.items():
        if run.dataset == dataset:
            using = models.setdefault(read_setting(setting, configs[name].plain), [])
            if run.model not in using:
                using.append(run.model)
    return sorted(models.items(), key=lambda item: -len(item[1]))


def read_setting(setting: str, config: Mapping[str, Any]) -> float:
    """Read one of iterations, learning_rate, batch_size (images per step, all processes) and weight_decay."""
    optimiser = config["optim_wrapper"]["optimizer"]
    return {
        "iterations": config["train_cfg"]["max_iters"],
        "learning_rate": optimiser["lr"],
        "batch_size": config["train_dataloader"]["batch_size"],
        "weight_decay": optimiser["weight_decay"],
    }[setting]
