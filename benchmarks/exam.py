"""Several judges examined with the same items, one after another, as the table of ``exam.md``.

    .venv/bin/python benchmarks/exam.py verl_prime_code=PYTHON livecodebench=PYTHON ...
    .venv/bin/python benchmarks/exam.py --table

Each argument is a module of ``whetstone_exam.graders`` with the interpreter in which its project is
installed; this judge is ``self``. The figures of each judge are kept in ``exam.json``, so that one judge can
be examined again. ``--table`` prints the tables of what is there, with the command for one failed item of
each judge.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).with_suffix(".json")
OURS = "self"
_KEPT = 3
PACKAGE = "whetstone_exam.graders"

Card = dict[str, Any]


def main() -> None:
    """Examine the judges of the command line, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("judges", nargs="*", metavar="self | MODULE=PYTHON")
    parser.add_argument("--items", type=int, default=0, help="a sample of N items for each judge; 0: all")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one judge")
    parser.add_argument("--table", action="store_true", help="examine nothing")
    options = parser.parse_args()
    cards: dict[str, Card] = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    for judge in [] if options.table else options.judges:
        name, _, python = judge.partition("=")
        cards[name] = examine(name, python, options.items, options.limit)
        FIGURES.write_text(json.dumps(cards, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print_table(cards)
    print_sections(cards)
    print_classes(cards)
    print_commands(cards)


def examine(name: str, python: str, items: int, limit_s: float) -> Card:
    """Return the scorecard of one judge, as ``whetstone exam --json`` writes it."""
    target = [name] if name == OURS else [f"{PACKAGE}.{name}:grade", "--python", python]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "card.json"
        command = [
            sys.executable,
            "-m",
            "whetstone",
            "exam",
            *target,
            "--items",
            str(items),
            "--json",
            str(file),
        ]
        done = subprocess.run(command, timeout=limit_s, stdout=subprocess.DEVNULL)
        if not file.exists():
            raise SystemExit(f"{name}: the exam ended with status {done.returncode} and without a scorecard")
        return shortened(json.loads(file.read_text(encoding="utf-8")))


def shortened(card: Card) -> Card:
    """Return a scorecard with the first failed items of each outcome only."""
    kept: dict[str, list[Card]] = {}
    for item in card["failed"]:
        kept.setdefault(item["outcome"], []).append(item)
    failed = [item for items in kept.values() for item in items[:_KEPT]]
    return {**card, "failed": failed, "items_without_verdict": []}


def print_table(cards: dict[str, Card]) -> None:
    """Print a row for each judge."""
    print(
        "| judge | accepted hacks | judge failed because of a hack | rejected honest programs "
        "| accepted wrong programs | no verdict | unsupported | seconds |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in sorted(cards, key=lambda name: (name != OURS, name)):
        card = cards[name]
        print(
            f"| {_title(card)} | {card['accepted_hacks']} of {card['hacks']} "
            f"| {card['failures_caused_by_hacks']} "
            f"| {card['rejected_honest_programs']} of {card['honest_programs']} "
            f"| {card['accepted_wrong_programs']} of {card['wrong_programs']} "
            f"| {card['no_verdict'] + card['no_reward']} | {card['unsupported']} | {card['seconds']:.0f} |"
        )


def print_sections(cards: dict[str, Card]) -> None:
    """Print the findings of the other sections that failed, and how many passed or could not be examined."""
    print("\n| judge | checks passed | not examined | failed |\n| --- | --- | --- | --- |")
    for name, card in sorted(cards.items(), key=lambda item: (item[0] != OURS, item[0])):
        findings = card["sections"]
        failed = [f"{one['section']}, {one['name']}: {one['text']}" for one in findings if one["failed"]]
        skipped = sum(not one["invariant"] for one in findings)
        passed = len(findings) - skipped - len(failed)
        print(f"| `{name}` | {passed} | {skipped} | {'<br>'.join(failed) or 'none'} |")


def print_commands(cards: dict[str, Card]) -> None:
    """Print the command that judges one failed item of each judge again."""
    print()
    for name, card in sorted(cards.items()):
        accepted = [item for item in card["failed"] if item["outcome"] == "accepted hack"]
        for item in (accepted or card["failed"])[:1]:
            print(f"    whetstone exam {PACKAGE}.{name}:grade --python PYTHON --item {item['id']!r}")


def print_classes(cards: dict[str, Card]) -> None:
    """Print the classes of hacks that a judge accepted, with the most frequent first."""
    print("\n| judge | classes of the accepted hacks |\n| --- | --- |")
    for name, card in sorted(cards.items()):
        counts = {key: found.get("accepted hack", 0) for key, found in card["classes"].items()}
        listed = sorted((item for item in counts.items() if item[1]), key=lambda item: -item[1])
        if listed:
            print(f"| `{name}` | {', '.join(f'{key} {count}' for key, count in listed)} |")


def _title(card: Card) -> str:
    """Return the version of a grader, or the name of this judge."""
    _, _, version = card["target"].partition(" (")
    return version.rstrip(")") or card["target"]


if __name__ == "__main__":
    main()
