"""``whetstone push``: send a model, a problem set or the records of a run to the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from whetstone.cli.flags import add_command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.folder_contents import other_folder
from whetstone.data.card import Census, read_card
from whetstone.data.dataset import SPLITS, is_dataset, open_problems
from whetstone.report.hub_cards import run_card, set_card
from whetstone.report.hub_upload import CARD, hub_library, upload
from whetstone.report.run_data import RunData, paired_changes, read_run


class _Model(Struct, frozen=True, kw_only=True):
    source: Annotated[
        str,
        Flag("a checkpoint (RUN/step-N, or RUN for the newest) or a model folder", "SOURCE", positional=True),
    ]
    base_model: Annotated[
        str, Flag("the hub id of the model that the training began with (default: as far as known)", "ID")
    ] = ""


class _Set(Struct, frozen=True, kw_only=True):
    source: Annotated[str, Flag("a dataset folder, or a problem file", "SET", positional=True)]


class _Run(Struct, frozen=True, kw_only=True):
    source: Annotated[str, Flag("the folder of a run, such as runs/tiny", "RUN", positional=True)]


class _Repository(Struct, frozen=True, kw_only=True):
    repo: Annotated[str, Flag("OWNER/NAME on the hub, or NAME for your account", "REPO", positional=True)]
    licence: Annotated[
        str, Flag("the hub's name of the licence, such as apache-2.0 (default: as far as known)", "ID")
    ] = ""
    public: Annotated[bool, Flag("let everybody read it")] = False
    replace: Annotated[bool, Flag("replace the files of an existing repository")] = False
    dry_run: Annotated[bool, Flag("print the files, their sizes and the card, and send nothing")] = False


def add_parser(subparsers: Any) -> None:
    """Declare the verb and its actions."""
    parser = subparsers.add_parser(
        "push",
        help="",  # in `VERBS`
        description="Send a model, a problem set or the records of a run to the Hugging Face hub, with a "
        "card, as one commit. A new repository is private. The token is that of `hf auth login` or HF_TOKEN.",
        epilog="examples: whetstone push model runs/tiny me/tiny --dry-run; "
        "whetstone push set sets/apps me/apps --licence mit",
    )
    actions = parser.add_subparsers(dest="action", metavar="model | set | run", required=True)
    add_command(actions, "model", push_model, help="a model, with the figures of its run on the card")
    add_command(actions, "set", push_set, help="a problem set, with a data card")
    add_command(actions, "run", push_run, help="recipe, metrics and evaluations of a run, with a card")


def push_model(model: _Model, to: _Repository) -> int:
    """Send a model. Raises UserError."""
    source = Path(model.source)
    if (source / "config.json").is_file() and not (source / "manifest.json").is_file():
        names = {str(file.relative_to(source)): file for file in source.rglob("*") if file.is_file()}
        run, files = None, {name: file for name, file in names.items() if "/." not in f"/{name}"}
        if CARD in files and (to.licence or model.base_model):
            raise UserError(f"{source / CARD}: is the card; state the licence and the base model in it")
    else:
        # Imported here so that the command line starts without torch.
        from whetstone.run.export import model_of

        checkpoint, files = model_of(source)
        run = _run_of(checkpoint.path, checkpoint.step)
    if run is not None and run.recipe:
        files["recipe.yaml"] = run.folder / "recipe.yaml"
    if run is None and CARD in files:
        return _push("model", files, to)
    card = run_card(run, to.repo, to.licence, model.base_model)
    return _push("model", {**files, CARD: card.encode()}, to)


def push_set(problems: _Set, to: _Repository) -> int:
    """Send a problem set. Raises UserError."""
    source = Path(problems.source)
    if is_dataset(source):
        files = {file.name: file for file in source.iterdir() if file.is_file()}
        splits = {split: f"{split}.parquet" for split in SPLITS if f"{split}.parquet" in files}
    elif source.is_file():
        files, splits = {source.name: source}, {SPLITS[0]: source.name}
    else:
        raise UserError(f"{other_folder(source, 'decisions.jsonl')}; give a dataset folder or a problem file")
    card = read_card(source)
    if card is None:
        census = Census()
        for split, name in splits.items():
            for problem in open_problems(files[name]):
                census.add(problem, split)
        card = census.card(splits, [])
    return _push("dataset", {**files, CARD: set_card(card, splits, to.repo, to.licence).encode()}, to)


def push_run(run: _Run, to: _Repository) -> int:
    """Send the records of a run. Raises UserError."""
    found = read_run(run.source, max_rollouts=0)
    names = ("recipe.yaml", "metrics.jsonl", "evaluations/*.jsonl", "evaluations/*/evaluation.json")
    paths = (path for name in names for path in found.folder.glob(name))
    files = {str(path.relative_to(found.folder)): path for path in paths}
    return _push("dataset", {**files, CARD: run_card(found, to.repo, to.licence, weights=False).encode()}, to)


def _run_of(checkpoint: Path, step: int) -> RunData | None:
    """Return the run of a checkpoint up to its step; None if the checkpoint lies elsewhere."""
    folder = checkpoint.resolve().parents[1]
    if not (folder / "metrics.jsonl").is_file():
        return None
    run = read_run(folder, max_rollouts=0)
    evals = [record for record in run.evals if record["step"] <= step]
    train = [record for record in run.train if record["step"] <= step]
    return replace(run, train=train, evals=evals, changes=paired_changes(folder, evals))


def _push(kind: str, files: Mapping[str, Path | bytes], to: _Repository) -> int:
    """Send the files, or list them with their sizes."""
    try:
        hub_library(".utils").validate_repo_id(to.repo)
    except ValueError as error:
        raise UserError(f"{to.repo}: not the name of a repository ({error}); give OWNER/NAME") from None
    sizes = {
        name: len(file) if isinstance(file, bytes) else file.stat().st_size
        for name, file in sorted(files.items())
    }
    total = f"{sum(sizes.values()):>14,}  bytes in {len(sizes)} files"
    if not to.dry_run:
        print(upload(to.repo, kind, files, public=to.public, replace=to.replace), total.strip(), sep=": ")
        return 0
    print(*(f"{size:>14,}  {name}" for name, size in sizes.items()), total, sep="\n")
    card = files[CARD]
    print(f"\n{card.decode() if isinstance(card, bytes) else card.read_text(encoding='utf-8')}", end="")
    return 0
