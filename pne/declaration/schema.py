"""What a YAML file under ``experiments/`` may say: the models of a table, a track and a named contrast.

The models check the form alone: keys, types and ranges. `pne.resolve` checks what the words point at (models,
data sets, loss options). Both report file, row and key. Unknown keys are errors.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$", description="Lower case letters, digits, underscores.")]
EvaluationName = Literal["single_scale", "multi_scale_flip"]
Precision = Literal["fp32", "bf16"]
SettingName = Literal["iterations", "learning_rate", "batch_size", "weight_decay"]
Seed = Annotated[int, Field(strict=True, ge=0)]
METRICS = ("miou", "time_s", "weight_std")  # and iou:<class>
CLASS_METRIC = "iou:"
BRANCH_KEYS = ("use", "weight", "start", "projection")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Published(_Strict):
    """One cell as the paper prints it. In YAML a bare number stands for ``{value: number}``."""

    value: float | None = Field(default=None, description="The printed number; null where the paper prints '-'.")
    delta: float | None = Field(default=None, description="The printed difference, as in 77.7(+0.6).")
    bold: bool = False
    kind: Literal["paper", "quoted", "quoted-zoo", "not-reported"] = Field(
        default="paper",
        description="paper: the authors' own run; quoted: literature; quoted-zoo: from the mmsegmentation zoo (the "
        "paper's dagger); not-reported: the paper prints '-'.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, data: Any) -> Any:
        if data is None:
            return {"kind": "not-reported"}
        if isinstance(data, int | float) and not isinstance(data, bool):
            return {"value": data}
        return data

    @model_validator(mode="after")
    def _has_value(self) -> "Published":
        if (self.value is None) != (self.kind == "not-reported"):
            raise ValueError("a published cell has a value unless its kind is not-reported")
        return self


class Column(_Strict):
    """One column of a printed table, in printed order."""

    title: str = Field(description="LaTeX text of the column head, as the paper prints it.")
    kind: Literal["label", "setting", "metric", "external"] = Field(
        description="label: the row's label; setting: text from the row's settings; metric: measured by runs; "
        "external: entered by hand from an evaluation server."
    )
    metric: str | None = Field(
        default=None,
        description="Of metric columns: miou, time_s, weight_std, or iou:<class>.",
    )
    evaluation: EvaluationName | None = Field(default=None, description="Of metric columns; default: the table's.")
    decimals: int = Field(default=1, ge=0, le=6)
    delta: bool = Field(default=False, description="Print the difference to the row's baseline.")
    bold: bool = Field(default=False, description="Print the best measured value of a group in bold.")

    @property
    def class_name(self) -> str | None:
        """The class of a metric ``iou:<class>``, None for other columns."""
        named = self.metric is not None and self.metric.startswith(CLASS_METRIC)
        return self.metric.removeprefix(CLASS_METRIC) if named else None

    @model_validator(mode="after")
    def _names_a_metric(self) -> "Column":
        known = self.metric is None or self.metric in METRICS or self.metric.startswith(CLASS_METRIC)
        if not known or (self.kind == "metric") != (self.metric is not None):
            raise ValueError(
                f"columns of kind metric, and no others, name a metric ({', '.join(METRICS)} or iou:<class>); "
                f"this one has kind {self.kind} and metric {self.metric!r}"
            )
        if self.evaluation is not None and self.kind != "metric":
            raise ValueError(f"only columns of kind metric have an evaluation, this one has kind {self.kind}")
        return self


class Paper(_Strict):
    """Where the table stands in the paper."""

    label: str = Field(description="LaTeX label in the paper's source; tables are cited by it.")
    number: int | None = Field(default=None, description="Printed number.")
    caption: str


class Row(_Strict):
    """One line (layout rows) or one column of a sweep (layout sweep) of a table."""

    label: str
    cite: str | None = Field(default=None, description="Citation key in the paper's source.")
    group: Key = Field(default="all", description="Measured bold is best of a group; a sweep stacks one block a group.")
    baseline: Key | None = Field(default=None, description="Row that deltas are taken against.")
    dataset: Key | None = None
    model: Key | None = None
    schedule: Key | None = None
    contrast: dict[str, Any] | None = Field(
        default=None,
        description="use: a name of experiments/contrast; weight, projection, start: of the branch; all else: "
        "options of the loss. Null: cross entropy alone.",
    )
    config: dict[str, Any] | None = Field(
        default=None, description="Changes to the mmengine config, dotted keys allowed."
    )
    trained: bool | None = Field(
        default=None, description="Whether the row is a run. Default: yes, unless every published cell is quoted."
    )
    dagger: bool = Field(default=False, description="The paper marks the row: result posted by mmsegmentation.")
    rule_above: bool = Field(default=False, description="Print a horizontal rule above the row.")
    reads: SettingName | None = Field(
        default=None,
        description="Of settings tables: the value of the resolved configs that stands beside the printed.",
    )
    settings: dict[str, str | bool | float] = Field(
        default_factory=dict, description="Cells of setting columns, by column key."
    )
    published: dict[str, Published] = Field(default_factory=dict, description="Cells as printed, by column key.")
    note: str | None = Field(default=None, description="Footnote, for what the paper leaves open.")

    @property
    def is_trained(self) -> bool:
        """Whether the row points at runs."""
        if self.trained is not None:
            return self.trained
        if self.reads is not None:
            return False
        cells = [cell for cell in self.published.values() if cell.kind != "not-reported"]
        return not cells or any(cell.kind != "quoted" for cell in cells)


class Table(_Strict):
    """``experiments/tables/<table>.yaml``: one table of the paper, or an own ablation."""

    table: Key
    question: str = Field(description="What the table answers.")
    paper: Paper | None = Field(default=None, description="Absent for an own ablation.")
    caption: str | None = Field(default=None, description="Of an own ablation; default: the question.")
    dataset: Key | None = None
    model: Key | None = None
    schedule: Key | None = Field(default=None, description="Default: the data set's own.")
    evaluation: EvaluationName = "single_scale"
    layout: Literal["rows", "sweep", "settings"] = "rows"
    columns: dict[Key, Column] = Field(min_length=1)
    groups: dict[Key, str] = Field(
        default_factory=dict,
        description="Of sweeps: one stacked block per group, with the LaTeX head of its first line (such as $\\tau$).",
    )
    rows: dict[Key, Row] = Field(min_length=1)
    note: str | None = None

    @property
    def number(self) -> int | None:
        """Printed number of the paper's table, None for an own ablation."""
        return self.paper.number if self.paper else None

    @model_validator(mode="after")
    def _rows_fit_the_table(self) -> "Table":
        problems = []
        for key, row in self.rows.items():
            if row.baseline is not None and row.baseline not in self.rows:
                problems.append(f"rows.{key}.baseline: no row {row.baseline!r}; rows: {', '.join(self.rows)}")
            elif row.baseline is not None and not _can_be_baseline(row.baseline, key, self.rows):
                others = ", ".join(name for name in self.rows if _can_be_baseline(name, key, self.rows))
                got = f"got {row.baseline!r}; allowed: {others}"
                problems.append(f"rows.{key}.baseline: expected another row that is trained, {got}")
            for kind, cells in (("settings", row.settings), ("published", row.published)):
                for column in cells:
                    if column not in self.columns:
                        problems.append(f"rows.{key}.{kind}: no column {column!r}; columns: {', '.join(self.columns)}")
            if self.layout == "sweep" and row.group not in self.groups:
                problems.append(f"rows.{key}.group: no group {row.group!r}; groups: {', '.join(self.groups)}")
            if (self.layout == "settings") != (row.reads is not None):
                problems.append(f"rows.{key}.reads: rows of settings tables, and no others, say what they read")
        if problems:
            raise ValueError("\n".join(problems))
        return self


def _can_be_baseline(name: str, of: str, rows: dict[str, Row]) -> bool:
    return name != of and rows[name].is_trained


class Contrast(_Strict):
    """``experiments/contrast/<contrast>.yaml``: a named contrastive loss with its settings."""

    contrast: Key
    description: str
    loss: str = Field(description="Class of pne.losses: PNELoss, AsymmetricContrastLoss or PixelContrastLoss.")
    preset: str | None = Field(default=None, description="A preset of the loss; options come on top of it.")
    weight: float = Field(ge=0, description="Factor of the loss beside cross entropy (the paper's alpha).")
    start: int = Field(default=0, ge=0, description="First iteration that the loss takes part in.")
    projection: dict[str, Any] | None = Field(default=None, description="channels, hidden, norm_cfg of the projection.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the loss, see pne.options.")


class TrackDataset(_Strict):
    """What stands for one of the paper's data sets on a track."""

    config: Key = Field(description="File experiments/datasets/<config>.py.")
    title: str = Field(description="Name of the data that is really used, for captions.")
    layout: Key = Field(description="Name of the on-disk layout that pne.datasets knows.")
    folder: str = Field(description="Folder of the data below data_root.")


class Track(_Strict):
    """``experiments/tracks/<track>.yaml``: concrete data sets, models and schedules for the paper's names."""

    track: Key
    title: str
    description: str
    comparable: bool = Field(description="Whether measured values may be compared with the published ones.")
    datasets: dict[Key, TrackDataset]
    models: dict[Key, Key] = Field(description="The paper's model name to a file experiments/models/<name>.py.")
    schedules: dict[Key, Key] = Field(
        description="The paper's data set name to a file experiments/schedules/<name>.py; other names are schedules "
        "that rows may ask for."
    )
    tables: list[Key] | None = Field(
        default=None, description="Tables that the track offers. Absent: every table whose data sets and models it has."
    )
    initial_weights: Literal["random", "imagenet", "weights_dir"] = Field(
        default="imagenet",
        description="Of the backbone. imagenet: the files that the stock configs name, by URL or from weights_dir; "
        "weights_dir: those if weights_dir is given, else random.",
    )
    seeds: list[Seed] = Field(min_length=1)
    precision: Precision = "fp32"
    contrast: dict[Key, dict[str, Any]] = Field(
        default_factory=dict,
        description="Changes to named contrasts, such as a start scaled to a short schedule; keys as in a row.",
    )
    data_root: str = "data"
    weights_dir: str | None = None
    workers: int = Field(default=2, ge=0)
    threads: int = Field(default=1, ge=1)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: int = Field(default=1, ge=1)
    micro_batch: int | None = Field(
        default=None, ge=1, description="Most images per process and forward pass; null: the whole batch at once."
    )
    checkpoint_interval: int = Field(gt=0, description="Iterations between checkpoints.")
    log_interval: int = Field(gt=0)
    cache_data: bool = Field(default=False, description="Keep decoded images in memory (small data sets only).")

    @model_validator(mode="after")
    def _names_each_seed_once(self) -> "Track":
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds: one is named twice in {self.seeds}; name it once")
        return self

    @model_validator(mode="after")
    def _has_a_schedule_for_each_dataset(self) -> "Track":
        missing = [name for name in self.datasets if name not in self.schedules]
        if missing:
            raise ValueError(f"schedules: none for {', '.join(missing)}; every data set of the track needs one")
        return self
