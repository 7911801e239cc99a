"""Cards for the Hugging Face hub, Markdown with metadata: of a model, of a run, and of a problem set."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whetstone import __version__
from whetstone.core.errors import UserError
from whetstone.data.card import Card, read_card
from whetstone.data.card_page import PROPERTIES
from whetstone.data.dataset import place_of
from whetstone.report.hub_upload import CARD, hub_library
from whetstone.report.ledger import latest_tokens
from whetstone.report.run_data import RunData, problem_counts, result_rows
from whetstone.report.run_page import run_facts
from whetstone.report.starts import read_starts

_TAGS = ["code", "reinforcement-learning", "whetstone"]
# Those of the hub's names for licences that sources of problems use.
_HUB_LICENCES = {"mit", "apache-2.0", "cc-by-4.0", "cc-by-sa-4.0"}


def run_card(
    run: RunData | None, repo: str, licence: str, base_model: str = "", *, weights: bool = True
) -> str:
    """Return the card of the model that ``run`` has trained (None: not known), or of its records alone.

    licence: the hub's name of the licence. base_model: its hub id. If empty, what is known of them is used.
    """
    base = base_model or str(run.section("model").get("path") or "" if run else "")
    if weights:
        licence = licence or _licence_of_folder(base)
        metadata = hub_library().ModelCardData(
            license=licence or None,
            base_model=base if base_model or _is_hub_id(base) else None,
            library_name="transformers",
            pipeline_tag="text-generation",
            tags=_TAGS,
        )
    else:
        rows = _rows_of({"train": "metrics.jsonl"})
        metadata = hub_library().DatasetCardData(license=licence or None, configs=rows, tags=_TAGS)
    about = _about_run(run) if run else ["How it was trained is not known."]
    return _page(metadata, repo, [_licences(licence, run), *about])


def set_card(card: Card, files: Mapping[str, str], repo: str, licence: str) -> str:
    """Return the card of a problem set; ``files`` maps each split to its file."""
    licences = [name.lower() for name in card.licences]
    metadata = hub_library().DatasetCardData(
        license=licence or (licences if _HUB_LICENCES.issuperset(licences) else None),
        tags=_TAGS,
        configs=_rows_of({split: file for split, file in files.items() if card.problems.get(split)}),
    )
    sources = (
        (s.name, s.title, f"{s.hub_id} at {s.commit}" if s.hub_id else "files", s.licence, s.rows, s.problems)
        for s in card.sources
    )
    steps = ((step.step, step.read, step.dropped, step.kept) for step in card.drop_report)
    properties = ((title, _pairs(getattr(card, name))) for name, title, _ in PROPERTIES)
    parts = [
        f"Programming problems for Whetstone: {_pairs(card.problems)}; {card.tests:,} tests. A row is a "
        "problem with its tests and references. Do not evaluate a model by problems of its training.",
        _table(("source", "title", "from", "licence", "rows", "problems"), sources),
        _table(("step", "read", "dropped", "kept"), steps),
        _table(("property", "problems"), properties),
    ]
    return _page(metadata, repo, parts)


def _about_run(run: RunData) -> Iterator[str]:
    """Yield the evaluation, the figures of the training, and the recipe."""
    yield "Trained by reinforcement learning with Whetstone."
    if run.evals:
        before, after = run.evals[0] if len(run.evals) > 1 else {}, run.evals[-1]
        heads = ("problems", f"step {before.get('step', 0)}", f"step {after['step']}", "change")
        yield _table(heads, result_rows(before, after, run.changes))
        yield f"In brackets: the 95% interval over {problem_counts(after)} problems. A change is paired."
    last = run.train[-1] if run.train else {}
    starts = read_starts(run.folder)[-1:]
    facts: list[tuple[str, object]] = [
        *run_facts(run),
        ("mean reward of the last step", last.get("reward/mean", "not recorded")),
        ("generated tokens", latest_tokens(run.train).get("generated", "not recorded")),
        *(("versions", f"{_pairs(start.versions)} {start.commit}") for start in starts),
    ]
    yield _table(("figure", "value"), facts)
    for start in starts:
        yield f"Settings that differ from the recipe {start.shipped}:" if start.shipped else "Settings:"
        yield _table(("key", "value"), ((key, json.dumps(now)) for key, (_, now) in start.settings.items()))
    if run.recipe:
        yield "The whole recipe is in `recipe.yaml`."


def _licences(licence: str, run: RunData | None) -> str:
    """Return the licences of a model and, if their data card is on this machine, of its problems."""
    text = f"Licence: {_plain(licence) or 'not stated'}."
    name = run.section("data").get("train") if run else None
    try:
        card = read_card(place_of(name)) if name and isinstance(name, str) else None
    except UserError:
        card = None
    return f"{text} Licences of the training problems: {_plain(_pairs(card.licences))}." if card else text


def _licence_of_folder(base: str) -> str:
    """Return the licence on the card in the folder of a base model; empty if there is none."""
    try:
        metadata = hub_library().metadata_load(Path(base, CARD)) if base else None
    except (OSError, ValueError):
        return ""
    licence: object = (metadata or {}).get("license")
    return licence if isinstance(licence, str) else ""


def _is_hub_id(path: str) -> bool:
    """Return whether a path in a recipe is that of a model which this machine has loaded from the hub. The
    path of a folder that has gone may look the same."""
    try:
        return isinstance(hub_library().try_to_load_from_cache(path, "config.json"), str)
    except ValueError:
        return False


def _rows_of(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the metadata that names the rows of each split."""
    listed = [{"split": split, "path": file} for split, file in files.items()]
    return [{"config_name": "default", "data_files": listed}]


def _page(metadata: Any, repo: str, parts: Iterable[str]) -> str:
    body = [
        f"# {_plain(repo.rpartition('/')[2])}",
        *filter(None, parts),
        f"Written by Whetstone {__version__}.",
    ]
    return f"---\n{metadata.to_yaml()}\n---\n\n" + "\n\n".join(body) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; empty without rows."""
    lines = [f"| {' | '.join(map(_plain, row))} |" for row in rows]
    return "\n".join([f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|", *lines]) if lines else ""


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _plain(value: object) -> str:
    """Return a value as one line that Markdown shows as it is: it may come from a data set."""
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return "".join("\\" + sign if sign in "|`*_<>[]\\" else sign for sign in " ".join(text.split()))
