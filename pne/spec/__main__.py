"""``python -m pne.spec``: write the files of runs, check all declarations, export their JSON Schemas."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pne.errors import UserError, reports_user_errors
from pne.files import write_text
from pne.spec.catalogue import read_catalogue
from pne.spec.reading import raise_problems
from pne.spec.resolve import ResolvedTrack, load_track
from pne.spec.run import Run, write_spec
from pne.spec.schema import Contrast, Table, Track
from pne.spec.stock import problem_of

SCHEMAS = {"table": Table, "track": Track, "contrast": Contrast, "run": Run}


def schema_texts() -> dict[str, str]:
    """Return the JSON Schema of each kind of file by file name."""
    schemas = {name: model.model_json_schema() for name, model in SCHEMAS.items()}
    # In YAML a bare number, or nothing for the paper's dash, stands for a published cell.
    cells = schemas["table"]["$defs"]["Row"]["properties"]["published"]
    cells["additionalProperties"] = {"anyOf": [cells["additionalProperties"], {"type": ["number", "null"]}]}
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {f"{name}.json": json.dumps(draft | schema, indent=1) + "\n" for name, schema in schemas.items()}


def check_declarations(
    experiments: Path, tracks: Sequence[str] | None = None, *, build: bool = False
) -> dict[str, ResolvedTrack]:
    """Check every declaration and resolve every track; with ``build``, build what their runs consist of.

    Raises
    ------
    UserError
        With one line per mistake, at most ten.
    """
    catalogue = read_catalogue(experiments)
    resolved: dict[str, ResolvedTrack] = {}
    problems: list[str] = []
    for name in tracks or catalogue.tracks:
        try:
            resolved[name] = load_track(name, studies=True, experiments=experiments, catalogue=catalogue)
        except UserError as error:
            problems += str(error).splitlines()
    raise_problems(problems)
    if build:
        from pne.engine.trial import find_mistakes  # imports torch and mmsegmentation

        raise_problems([line for track in resolved.values() for line in find_mistakes(track, catalogue)])
    return resolved


def check_weights(track: ResolvedTrack, run: str) -> None:
    """Check that the initial weights of a run lie in ``weights_dir``, where one is given, and look like weights.

    Training and rehearsal load them before they begin; here torch is not imported.

    Raises
    ------
    UserError
        If the file is missing or is something else; names the file and where it comes from.
    """
    spec = track.runs[run]
    source = track.config(run).model.backbone.get("init_cfg")
    if spec.runtime.weights_dir is None or not isinstance(source, Mapping) or "checkpoint" not in source:
        return
    if problem := problem_of(Path(source["checkpoint"])):
        url = track.initial_weights(run)
        raise UserError(
            f"{source['checkpoint']}: {problem}, and run {run} starts from it; download {url} to this folder, or "
            f"leave out --weights-dir to have it downloaded when training starts"
        )


def _parse_runtime(assignments: Sequence[str]) -> dict[str, Any]:
    runtime = {}
    for text in assignments:
        key, separator, value = text.partition("=")
        if not separator:
            raise UserError(f"--runtime {text}: expected KEY=VALUE, such as workers=4")
        try:
            runtime[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UserError(f"--runtime {text}: {value!r} is no value: {error}") from error
    return runtime


def add_track_options(command: argparse.ArgumentParser) -> None:
    """Add the options that name a track and what is other than it says, and those that choose among its runs."""
    command.add_argument("--track", required=True)
    command.add_argument("--run", nargs="+", metavar="ID", help="default: every run")
    command.add_argument("--tables", nargs="+", metavar="TABLE", help="the runs of these tables alone")
    command.add_argument("--seeds", nargs="+", type=int, help="instead of the track's")
    command.add_argument("--data-root", type=Path)
    command.add_argument("--weights-dir", type=Path)
    command.add_argument("--results", type=Path, default=Path("results"))
    command.add_argument("--experiments", type=Path, default=Path("experiments"), help="folder of the declarations")
    command.add_argument(
        "--runtime", nargs="+", default=[], metavar="KEY=VALUE", help="workers, threads, device, gpus, ...: not hashed"
    )


def track_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return what `load_track` takes of the options of `add_track_options`.

    Raises
    ------
    UserError
        If a setting of the runtime is no ``KEY=VALUE``.
    """
    options = {key: getattr(args, key) for key in ("experiments", "results", "data_root", "weights_dir", "seeds")}
    return options | {"runtime": _parse_runtime(args.runtime)}


def _write(args: argparse.Namespace) -> None:
    options = track_options(args) | {"iterations": args.iterations, "limit": args.limit}
    track = load_track(args.track, tables=args.tables, studies=bool(args.run), **options)
    for run in args.run or track.runs:
        config = track.config(run)
        check_weights(track, run)
        print(write_spec(track.runs[run], config))


def _check(args: argparse.Namespace) -> None:
    for name, track in check_declarations(args.experiments, args.track, build=args.build).items():
        offered = [key for key, table in track.tables.items() if table.available]
        print(f"{name}: {len(track.runs)} runs in {len(offered)} tables: {', '.join(offered)}")
        for key, table in track.tables.items():
            if not table.available:
                print(f"  without {key}: {table.reason}")


def _schema_files(args: argparse.Namespace) -> None:
    for name, text in schema_texts().items():
        write_text(args.out / name, text)
        print(args.out / name)


def parser() -> argparse.ArgumentParser:
    """Return the command line of ``python -m pne.spec``."""
    result = argparse.ArgumentParser(prog="python -m pne.spec", description=__doc__.split("\n", 1)[0])
    commands = result.add_subparsers(required=True, metavar="COMMAND")
    write = commands.add_parser("write", help="write spec.yaml and config.py of runs")
    add_track_options(write)
    write.add_argument("--iterations", type=int, help="shorten every run (rehearsals); makes other runs")
    write.add_argument("--limit", type=int, help="use the first images of each split alone; makes other runs")
    write.set_defaults(command=_write)
    check = commands.add_parser("check", help="check all declarations and count the runs of each track")
    check.add_argument("--track", nargs="+", help="default: every track")
    check.add_argument(
        "--build", action="store_true", help="build every distinct network, pipeline and optimiser once, without data"
    )
    check.add_argument("--experiments", type=Path, default=Path("experiments"), help="folder of the declarations")
    check.set_defaults(command=_check)
    schema = commands.add_parser("schema", help="export JSON Schemas for editors")
    schema.add_argument("--out", type=Path, default=Path("experiments/schemas"))
    schema.set_defaults(command=_schema_files)
    return result


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Run one command of ``python -m pne.spec``."""
    args = parser().parse_args(argv)
    args.command(args)


if __name__ == "__main__":
    sys.exit(main())
