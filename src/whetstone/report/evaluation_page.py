"""The data of the page of an evaluation, or of two that are compared: results, and problems with replies.

`whetstone report` writes the page with all replies as one file; `whetstone view` serves the same data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Any

from whetstone.core.outputs import write_file
from whetstone.data.case_inputs import CaseInputs
from whetstone.environments.prompt import Prompt
from whetstone.evaluate.folder import MANIFEST_FILE
from whetstone.evaluate.manifest import differences
from whetstone.evaluate.results import (
    Evaluation,
    SampleResult,
    evaluation_pairs,
    evaluations_in,
    load_evaluation,
)
from whetstone.evaluate.tables import changes_of, results_of, sampling_text
from whetstone.report.evaluation_index import EvaluationIndex, IndexedReply
from whetstone.report.page import html_page
from whetstone.report.reply_rows import case_rows, error_line, verdict_word

# The most characters of the beginning and of the end of a text. The program of a reply is at its end.
MOST_HEAD, MOST_TAIL = 6_000, 14_000
MOST_CASES = 40


def write_evaluation_page(
    folder: str | Path, other: str | Path | None = None, out: str | Path | None = None, *, replies: int = 4
) -> Path:
    """Write the page of the evaluations in ``folder``, compared with those in ``other`` if it is given.

    out: the file; None: ``folder/evaluation.html`` or ``folder/comparison.html``.
    replies: the number of replies to each problem on the page.

    Raises UserError for a folder without an evaluation, and for two folders without a common benchmark.
    """
    target = Path(out) if out else Path(folder) / ("comparison.html" if other else "evaluation.html")
    title = Path(folder).name if other is None else f"{Path(folder).name} and {Path(other).name}"
    results: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for name, places in _pairs(folder, other):
        results.append(results_page(name, [load_evaluation(place) for place in places]))
        sides = [EvaluationIndex(place) for place in places]
        inputs = CaseInputs(problem_sets_of(places[0]))
        rows += [
            row | problem_replies(sides, row["id"], replies, row["sides"], inputs.of(row["id"]))
            for row in problem_rows(name, sides)
        ]
    cut = any(side["n"] > replies for row in rows for side in row["sides"])
    note = f"The first {replies} replies to each problem. " if cut else ""
    note += "Long texts are cut in the middle. samples.jsonl has the full texts."
    data = {"page": {"title": title, "results": results}, "rows": rows, "note": note}
    write_file(target, [html_page("evaluation", title, data).encode(errors="replace")])
    return target


def results_page(name: str, found: Sequence[Evaluation]) -> dict[str, Any]:
    """Return the results of a benchmark in one evaluation, or in two with their paired difference."""
    sides = [results_of(one) for one in found]
    notes = [_note(one, table.notes) for one, table in zip(found, sides, strict=True)]
    table, unlike = sides[0], list[str]()
    if len(found) == 2:
        table, unlike = changes_of(name, *found), differences(found[0].manifest, found[1].manifest)
        notes = [*(f"{side}: {note}" for side, note in zip("ab", notes, strict=True)), *table.notes]
    return {"name": name, "heads": table.heads, "rows": table.rows, "notes": notes, "differences": unlike}


def problem_rows(name: str, sides: Sequence[EvaluationIndex]) -> list[dict[str, Any]]:
    """Return the problems that all sides have, in the order of the first side. Replies are not included."""
    first, *others = (side.problems() for side in sides)
    rows: list[dict[str, Any]] = []
    for problem, replies in first.items():
        if not all(problem in other for other in others):
            continue
        found = [replies, *(other[problem] for other in others)]
        summaries = [_side_of(side_replies) for side_replies in found]
        rows.append(
            {
                "benchmark": name,
                "id": problem,
                "outcome": outcome(summaries),
                "verdicts": sorted({reply.verdict for side_replies in found for reply in side_replies}),
                "sides": summaries,
            }
        )
    return rows


def problem_replies(
    sides: Sequence[EvaluationIndex],
    problem: str,
    most: int,
    counts: Sequence[dict[str, Any]],
    inputs: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the prompt of a problem, and the first replies of each side with its ``counts``.

    inputs: the inputs of all cases of the problem, if they are known.
    """
    prompt = next((kept for side in sides if (kept := side.prompt(problem))), None)
    return {
        "prompt": _prompt_text(prompt),
        "sides": [
            {**side_counts, "replies": [_reply_row(sample, inputs) for sample in side.replies(problem, most)]}
            for side_counts, side in zip(counts, sides, strict=True)
        ],
    }


def problem_sets_of(folder: Path) -> list[str]:
    """Return the name or path of the problem set of an evaluation; empty if its manifest has none."""
    try:
        manifest: Any = json.loads((folder / MANIFEST_FILE).read_bytes())
        return [str(manifest["benchmark"]["source"])]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _side_of(replies: Sequence[IndexedReply]) -> dict[str, Any]:
    """Return the number of replies ``n``, how many are ``right`` (None if they have rewards only), and the
    mean ``reward`` of those that have one."""
    rewards = [reply.reward for reply in replies if reply.reward is not None]
    rewards_only = rewards and not any(reply.decided for reply in replies)
    return {
        "right": None if rewards_only else sum(reply.solved for reply in replies),
        "n": len(replies),
        "reward": fsum(rewards) / len(rewards) if rewards else None,
    }


def outcome(sides: Sequence[dict[str, Any]]) -> str:
    """Return the outcome of a problem from the ``right`` of ``n`` replies, or the mean reward, of each
    side."""
    if all(side["right"] is None for side in sides):
        return _outcome_of_rewards([side["reward"] for side in sides])
    shares = [(side["right"] or 0) / side["n"] if side["n"] else 0.0 for side in sides]
    if len(shares) == 1:
        return "always right" if shares[0] == 1 else "sometimes right" if shares[0] else "never right"
    if shares[0] != shares[1]:
        return "gained" if shares[1] > shares[0] else "lost"
    return "right in both" if shares[0] == 1 else "equal" if shares[0] else "wrong in both"


def _outcome_of_rewards(rewards: Sequence[float | None]) -> str:
    known = [reward for reward in rewards if reward is not None]
    if len(known) < len(rewards):
        return "no reward" if len(rewards) == 1 else "no reward in one of them"
    if len(known) == 1:
        return "rewarded"
    return "equal" if known[0] == known[1] else "gained" if known[1] > known[0] else "lost"


def clip_text(text: str) -> str:
    """Return a text of at most ``MOST_HEAD + MOST_TAIL`` characters, or its beginning and end."""
    left_out = len(text) - MOST_HEAD - MOST_TAIL
    if left_out <= 0:
        return text
    return f"{text[:MOST_HEAD]}\n… {left_out} characters left out …\n{text[-MOST_TAIL:]}"


def _pairs(folder: str | Path, other: str | Path | None) -> list[tuple[str, list[Path]]]:
    """Return the benchmarks by name, each with the one or two folders of its evaluations."""
    if other is None:
        return [(name, [place]) for name, place in evaluations_in(folder).items()]
    return [(name, [*places]) for name, *places in evaluation_pairs(folder, other)]


def _note(evaluation: Evaluation, notes: Sequence[str]) -> str:
    """Return the model and the sampling of an evaluation, and the notes about its results, as a line."""
    shares = evaluation.shares
    model = evaluation.manifest.get("model", {}).get("source", "model not named")
    failures = f"failed {shares.failed:.1%}, without a result {shares.judge_error:.1%}"
    return "; ".join([f"{model}, {sampling_text(evaluation)}", *notes, failures])


def _reply_row(sample: SampleResult, inputs: Sequence[str]) -> dict[str, Any]:
    judgement = sample.judgement
    cases = judgement.cases if judgement else []
    return {
        "index": sample.index,
        "verdict": verdict_word(
            judgement and judgement.verdict, sample.accepted, sample.reward, failed=sample.failed
        ),
        "reward": sample.reward,
        "reason": clip_text(sample.error or (judgement.reason if judgement else "")),
        "error_line": error_line(judgement.verdict, judgement.reason) if judgement else None,
        "finish": sample.finish_reason,
        "tokens": sample.tokens,
        "text": clip_text(sample.text),
        "dialogue": [(role, clip_text(text)) for role, text in sample.dialogue],
        "program": None if sample.program is None else clip_text(sample.program),
        "more": max(0, len(cases) - MOST_CASES),
        "cases": case_rows(cases[:MOST_CASES], clip_text, inputs),
    }


def _prompt_text(prompt: Prompt | None) -> str:
    if prompt is None:
        return "not kept"
    turns = [f"[{turn['role']}]\n{turn['content']}" for turn in prompt.messages()]
    prefix = [f"[the reply begins with]\n{prompt.prefix}"] if prompt.prefix else []
    return clip_text("\n\n".join([*(turns if prompt.chat else [prompt.user]), *prefix]))
