"""What a YAML file under ``experiments/`` may say: the models of a table, a track and a named contrast.

The models check the form alone: keys, types and ranges. `pne.spec` checks what the words point at (models,
data sets, loss options). Both report file, row and key. Unknown keys are errors.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$", description="Lower case letters, digits, underscores.")]
EvaluationName = Literal["single_scale", "multi_scale_flip"]
Precision = Literal["fp32", "bf16"]
SettingName = Literal["iterations", "learning_rate", "batch_size", "weight_decay"]
Seed = Annotated[int, Field(strict=True, ge=0)]
OF_TRAINING = ("time_s", "peak_memory_mib", "gradient_norm", "weight_std")
METRICS = ("miou", "boundary_iou", "calibration_error", *OF_TRAINING)  # and iou:<class>
CLASS_METRIC = "iou:"


class Strict(BaseModel):
    """A model without unknown keys, infinite numbers or changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Published(Strict):
    """One cell as the paper prints it. In YAML a bare number stands for ``{value: number}``."""

    value: float | None = Field(default=None, description="The printed number; null where the paper prints '-'.")
    delta: float | None = Field(default=None, description="The printed difference, as in 77.7(+0.6).")
    bold: bool = False
    kind: Literal["paper", "quoted", "quoted-zoo", "not-reported"] = Field(
        default="paper",
        description="paper: the authors' run; quoted: literature; quoted-zoo: mmseg (dagger); not-reported: '-'.",
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


class Column(Strict):
    """One column of a printed table, in printed order."""

    title: str = Field(description="LaTeX text of the column head, as the paper prints it.")
    kind: Literal["label", "setting", "metric", "external"] = Field(
        description="label: the row's; setting: from its settings; metric: of runs; external: of an evaluation server."
    )
    metric: str | None = Field(default=None, description=f"Of metric columns: {', '.join(METRICS)}, or iou:<class>.")
    evaluation: EvaluationName | None = Field(default=None, description="Of metric columns; default: the table's.")
    decimals: int = Field(default=1, ge=0, le=6)
    delta: bool = Field(default=False, description="Print the difference to the row's baseline.")
    relative_to: Key | None = Field(default=None, description="Row whose value with the same seed each is divided by.")
    bold: bool = Field(default=False, description="Print the best measured value of a group in bold.")
    interval: bool = Field(default=False, description="Print the 95 % interval of the mean over seeds, nothing else.")

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


class Paper(Strict):
    """Where the table stands in the paper."""

    label: str = Field(description="LaTeX label in the paper's source; tables are cited by it.")
    number: int | None = Field(default=None, description="Printed number.")
    caption: str


class Row(Strict):
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
        description="use: of experiments/contrast; weight, start, projection; options of the loss. Null: none.",
    )
    config: dict[str, Any] | None = Field(
        default=None, description="Changes to the mmengine config; keys may be dotted."
    )
    trained: bool | None = Field(
        default=None, description="Whether it is run. Default: unless all it prints is quoted."
    )
    dagger: bool = Field(default=False, description="The paper marks the row: result posted by mmsegmentation.")
    rule_above: bool = Field(default=False, description="Print a horizontal rule above the row.")
    reads: SettingName | None = Field(
        default=None, description="Of settings tables: what of the configs stands beside."
    )
    settings: dict[str, str | bool | float] = Field(default_factory=dict, description="Of setting columns, by column.")
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


class Table(Strict):
    """``experiments/tables/<table>.yaml``: one table of the paper, or an own ablation."""

    table: Key
    question: str = Field(description="What the table answers.")
    study: bool = Field(default=False, description="Made when it, or the target studies, is asked for; not by tables.")
    paper: Paper | None = Field(default=None, description="Absent for an own ablation.")
    caption: str | None = Field(default=None, description="Of an own ablation; default: the question.")
    dataset: Key | None = None
    model: Key | None = None
    schedule: Key | None = Field(default=None, description="Default: the data set's own.")
    evaluation: EvaluationName = "single_scale"
    layout: Literal["rows", "sweep", "settings"] = "rows"
    columns: dict[Key, Column] = Field(min_length=1)
    groups: dict[Key, str] = Field(
        default_factory=dict, description="Of sweeps: a stacked block each, with the head of its first line ($\\tau$)."
    )
    rows: dict[Key, Row] = Field(min_length=1)
    note: str | None = None

    @property
    def number(self) -> int | None:
        """Printed number of the paper's table, None for an own ablation."""
        return self.paper.number if self.paper else None

    @property
    def evaluations(self) -> set[str]:
        """Evaluations that the table prints."""
        return {self.evaluation, *(column.evaluation for column in self.columns.values() if column.evaluation)}

    def words_of(self, row: Row) -> tuple[str | None, str | None, str | None]:
        """Return data set, model and schedule of a row: its own, else the table's; last, the data set's schedule."""
        dataset, model = row.dataset or self.dataset, row.model or self.model
        return dataset, model, row.schedule or self.schedule or dataset

    @model_validator(mode="after")
    def _rows_fit_the_table(self) -> "Table":
        problems = []
        for key, column in self.columns.items():
            if (unit := column.relative_to) not in (None, *self.rows):
                problems.append(f"columns.{key}.relative_to: no row {unit!r}; rows: {', '.join(self.rows)}")
        for key, row in self.rows.items():
            others = [name for name, other in self.rows.items() if name != key and other.is_trained]
            if row.baseline is not None and row.baseline not in self.rows:
                problems.append(f"rows.{key}.baseline: no row {row.baseline!r}; rows: {', '.join(self.rows)}")
            elif row.baseline is not None and row.baseline not in others:
                got = f"got {row.baseline!r}; allowed: {', '.join(others)}"
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


Channels = Annotated[int, Field(strict=True, gt=0)]


class Projection(Strict):
    """What the branch makes embeddings with; the defaults are those of the ``Projection`` of `pne.heads`."""

    channels: Channels = Field(default=256, description="Of the embeddings.")
    hidden: Channels | None = Field(default=None, description="Between the convolutions; null: those of the features.")
    norm_cfg: dict[str, Any] | None = Field(default=None, description="Norm with its type; null: that of the head.")
    taps: Literal["classifier", "backbone"] = Field(
        default="classifier", description="What is projected: the input of the pixel classifier or of the head."
    )


class Branch(Strict):
    """Settings of the branch that carries a contrastive loss."""

    weight: float = Field(strict=True, ge=0, description="Factor of the loss beside cross entropy (the paper's alpha).")
    start: int = Field(default=0, strict=True, ge=0, description="First iteration that the loss takes part in.")
    projection: Projection | None = Field(default=None, description="Settings of the projection.")


class Contrast(Branch):
    """``experiments/contrast/<contrast>.yaml``: a named contrastive loss with its settings."""

    contrast: Key
    description: str
    loss: str = Field(description="PNELoss, AsymmetricContrastLoss, PixelContrastLoss, or an own one as module:Class.")
    preset: str | None = Field(default=None, description="A preset of the loss; options come on top of it.")
    options: dict[str, Any] = Field(default_factory=dict, description="See pne.options, or keywords of the own class.")


class TrackDataset(Strict):
    """What stands for one of the paper's data sets on a track."""

    config: Key = Field(description="File experiments/datasets/<config>.py.")
    title: str = Field(description="Name of the data that is really used, for captions.")
    layout: Key = Field(description="Name of the on-disk layout that pne.datasets knows.")
    folder: str = Field(description="Folder of the data below data_root.")


class Resources(Strict):
    """What one run of a track asks of a machine.

    A cluster's scheduler gets these numbers, a local workflow uses GPUs and cores alone. They only have to be large
    enough: a job that hits its limits is started again, with more, and continues from its checkpoint.
    ``python -m pne.rehearse`` measures seconds and memory on the hardware at hand.
    """

    memory_mb: int = Field(gt=0, description="Host memory per GPU, or per run on the CPU.")
    overhead_minutes: int = Field(ge=1, description="For start and evaluation.")
    seconds_per_iteration: dict[Key, Annotated[float, Field(gt=0)]] = Field(
        description="On one GPU, by the paper's model names; default: for all others."
    )

    @model_validator(mode="after")
    def _has_a_default(self) -> "Resources":
        if "default" not in self.seconds_per_iteration:
            raise ValueError("seconds_per_iteration: no default; add one for models not named")
        return self

    def memory(self, gpus: int, attempt: int = 1) -> int:
        """Host memory in MB; another attempt asks for half as much again."""
        return round(self.memory_mb * max(1, gpus) * (1 + attempt) / 2)

    def minutes(self, model: str, iterations: int, attempt: int = 1) -> int:
        """Time limit in minutes; every attempt asks for as much again."""
        seconds = self.seconds_per_iteration.get(model, self.seconds_per_iteration["default"])
        return math.ceil(self.overhead_minutes + iterations * seconds / 60) * attempt


class Machine(Strict):
    """Where and how runs are executed; nothing of it belongs to a run's identity."""

    data_root: str = Field(default="data", description="Folder that holds the data sets' folders.")
    weights_dir: str | None = Field(default=None, description="Folder with initial weights; null: by their URLs.")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: int = Field(default=1, ge=1, description="Training processes on CUDA devices; the global batch is split.")
    micro_batch: int | None = Field(
        default=None, ge=1, description="Most images per process and pass; null: all at once."
    )
    workers: int = Field(default=2, ge=0, description="Loader processes per training process.")
    threads: int = Field(default=1, ge=1, description="CPU threads per training process.")
    checkpoint_interval: int = Field(gt=0, description="Iterations between checkpoints.")
    log_interval: int = Field(gt=0, description="Iterations between log lines.")
    cache_data: bool = Field(default=False, description="Keep decoded images in memory (small data sets only).")


class Track(Machine):
    """``experiments/tracks/<track>.yaml``: concrete data sets, models and schedules for the paper's names."""

    track: Key
    title: str
    description: str
    comparable: bool = Field(description="Whether measured values may be compared with the published ones.")
    datasets: dict[Key, TrackDataset]
    models: dict[Key, Key] = Field(description="The paper's model name to a file experiments/models/<name>.py.")
    schedules: dict[Key, Key] = Field(
        description="The paper's data set name, or one that rows ask for, to a file experiments/schedules/<name>.py."
    )
    tables: list[Key] | None = Field(
        default=None, description="Offered ones. Null: all with data sets and models of it."
    )
    initial_weights: Literal["random", "imagenet", "weights_dir"] = Field(
        default="imagenet", description="imagenet: as stock configs name them; weights_dir: so where that is given."
    )
    seeds: list[Seed] = Field(min_length=1)
    precision: Precision = "fp32"
    contrast: dict[Key, dict[str, Any]] = Field(
        default_factory=dict, description="Changes to named contrasts, such as an earlier start; keys as in a row."
    )
    resources: Resources

    @model_validator(mode="after")
    def _names_fit_together(self) -> "Track":
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds: one is named twice in {self.seeds}; name it once")
        missing = [name for name in self.datasets if name not in self.schedules]
        if missing:
            raise ValueError(f"schedules: none for {', '.join(missing)}; every data set of the track needs one")
        unknown = [name for name in self.resources.seconds_per_iteration if name not in {"default", *self.models}]
        if unknown:
            raise ValueError(f"resources.seconds_per_iteration: no model {', '.join(unknown)} on the track")
        return self
