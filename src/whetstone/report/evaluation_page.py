"""One self-contained HTML page of an evaluation, or of two side by side: figures, and every problem with its
prompt, replies, programs and cases.

Replies are hostile text, as in ``page``: they reach the page as escaped JSON that its script shows as text.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from whetstone import __version__
from whetstone.assets.page import asset, page
from whetstone.errors import UserError
from whetstone.evaluate.compare import evaluations_in
from whetstone.evaluate.folder import read_prompts, read_samples
from whetstone.evaluate.manifest import differences
from whetstone.evaluate.passk import Estimate, paired_difference
from whetstone.evaluate.results import Evaluation, SampleResult, load_evaluation
from whetstone.outputs import write_file
from whetstone.report.page import PACKAGE, script_json
from whetstone.report.reply_rows import case_rows, error_line
from whetstone.workflow.prompt import Prompt

PROBLEM_SCRIPTS = ("browse.js", "reply.js", "evaluation.js")
"""What the script of every page of problems stands on."""
SORTS = ("as asked", "id", "least right", "most right", "most gained", "most lost")
SIDES = ("a", "b")
MOST_HEAD, MOST_TAIL = 6_000, 14_000
"""Characters of a text that the page holds: of its beginning, and of its end, where a reply's program is."""
MOST_CASES = 40


def write_evaluation_page(
    folder: str | Path, other: str | Path | None = None, out: str | Path | None = None, *, replies: int = 4
) -> Path:
    """Write the page of the evaluations in ``folder``, beside those in ``other`` where that is given, with
    the first ``replies`` of each problem. ``out`` is ``folder/evaluation.html`` or ``comparison.html`` unless
    it is said.

    Raises UserError for a folder that holds no evaluation, and for two that share no benchmark.
    """
    target = Path(out) if out else Path(folder) / ("comparison.html" if other else "evaluation.html")
    text = _render(_pairs(folder, other), str(folder), None if other is None else str(other), replies)
    write_file(target, [text.encode(errors="replace")])
    return target


def _pairs(folder: str | Path, other: str | Path | None) -> list[tuple[str, list[Path]]]:
    """The benchmarks by name, each with the one or two folders that hold it."""
    first = evaluations_in(folder)
    if other is None:
        return [(name, [place]) for name, place in first.items()]
    second = evaluations_in(other)
    if len(first) == len(second) == 1:
        return [(next(iter(second)), [*first.values(), *second.values()])]
    if not (both := [name for name in first if name in second]):
        raise UserError(f"{folder} and {other} have no benchmark in common; give evaluations of the same one")
    return [(name, [first[name], second[name]]) for name in both]


def _render(pairs: list[tuple[str, list[Path]]], a: str, b: str | None, replies: int) -> str:
    sections: list[str] = []
    problems: list[dict[str, Any]] = []
    cut = False
    for name, places in pairs:
        found = [load_evaluation(place) for place in places]
        sections.append(figures_section(name, found))
        cut = cut or any(evaluation.plan.n > replies for evaluation in found)
        problems += _problems(name, places, found, replies)
    title = Path(a).name if b is None else f"{Path(a).name} and {Path(b).name}"
    note = f"The first {replies} replies to each problem; " if cut else ""
    note += "long texts are shortened in the middle. samples.jsonl holds everything."
    return page(
        kind="evaluation" if b is None else "comparison",
        title=title,
        headline=f"<h1>{html.escape(title)}</h1>",
        main="".join(sections) + problems_main(note, len(pairs[0][1])),
        footer=f"Whetstone {html.escape(__version__)}. Figures are those of evaluation.json.",
        css=asset(PACKAGE, "page.css"),
        data=script_json({"problems": problems, "sides": SIDES[: 1 if b is None else 2]}),
        script="".join(asset(PACKAGE, name) for name in (*PROBLEM_SCRIPTS, "problems.js")),
    )


def problems_main(note: str, sides: int) -> str:
    """The browser of problems as HTML; ``note`` says which replies it holds."""
    names = SORTS if sides == 2 else SORTS[:4]
    orders = "".join(f"<option>{html.escape(name)}</option>" for name in names)
    return Template(asset(PACKAGE, "evaluation.html")).substitute(note=html.escape(note), orders=orders)


def outcome(counts: Sequence[tuple[int, int]]) -> str:
    """What became of a problem: ``counts`` are (right, replies) of the one or two sides, in their order."""
    shares = [right / n if n else 0.0 for right, n in counts]
    if len(shares) == 1:
        return "always right" if shares[0] == 1 else "sometimes right" if shares[0] else "never right"
    if shares[0] != shares[1]:
        return "gained" if shares[1] > shares[0] else "lost"
    return "right in both" if shares[0] == 1 else "equal" if shares[0] else "wrong in both"


def figures_section(name: str, found: list[Evaluation]) -> str:
    """The figures of a benchmark, and what they rest on."""
    rows = [_figures(f"pass@{k}", found, k) for k in sorted(set(found[0].pass_at) & set(found[-1].pass_at))]
    heads = (
        ["", "pass", "95% interval", "problems"]
        if len(found) == 1
        else ["", "a", "b", "b - a", "95% interval"]
    )
    parts = [f"<section class='panel wide'><h2>{html.escape(name)}</h2>", _table(heads, rows)]
    for side, evaluation in zip("ab", found, strict=False):
        shares, plan = evaluation.shares, evaluation.plan
        verdicts = ", ".join(f"{word.replace('_', ' ')} {count}" for word, count in shares.verdicts.items())
        who = f"{side}: " if len(found) > 1 else ""
        model = evaluation.manifest.get("model", {}).get("source", "model not named")
        sampling = f"n = {plan.n}, temperature {plan.temperature:g}, at most {plan.max_tokens} tokens"
        lost = f"failed {shares.failed:.1%}, not judged {shares.judge_error:.1%}"
        cut = f"cut at the limit {shares.truncated:.1%}, without code {shares.no_code:.1%}, {lost}"
        line = f"{who}{model}, {sampling}; {verdicts}; {cut}"
        parts.append(f"<p class='note'>{html.escape(line)}</p>")
    if len(found) == 2 and (changed := differences(found[0].manifest, found[1].manifest)):
        items = "".join(f"<li>{html.escape(line)}</li>" for line in changed)
        parts.append(f"<p class='note'>Not measured alike:</p><ul class='note'>{items}</ul>")
    return "".join([*parts, "</section>"])


def _figures(label: str, found: list[Evaluation], k: int) -> list[str]:
    if len(found) == 1:
        estimate = found[0].pass_at[k]
        return [
            label,
            _percent(estimate),
            f"{estimate.low:.1%} to {estimate.high:.1%}",
            str(estimate.problems),
        ]
    try:
        difference = paired_difference(found[0].values(k), found[1].values(k))
    except ValueError as error:
        raise UserError(f"{error}; compare evaluations of the same benchmark") from None
    bounds = f"{difference.low * 100:+.1f} to {difference.high * 100:+.1f}"
    return [label, f"{difference.a:.1%}", f"{difference.b:.1%}", f"{difference.value * 100:+.1f}", bounds]


def _percent(estimate: Estimate) -> str:
    return f"{estimate.value:.1%}"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _problems(
    name: str, places: list[Path], found: list[Evaluation], replies: int
) -> Iterator[dict[str, Any]]:
    """Of each problem that all sides have: its prompt, and of each side the count and the first replies."""
    prompts: Mapping[str, Prompt] = {}
    for place in places:
        prompts = prompts or read_prompts(place)
    kept = [_replies(place, replies) for place in places]
    counts = [{problem.id: problem for problem in evaluation.problems} for evaluation in found]
    for problem in found[0].problems:
        if all(problem.id in each for each in counts):
            yield {
                "benchmark": name,
                "id": problem.id,
                "prompt": prompt_text(prompts.get(problem.id)),
                "outcome": outcome([(c[problem.id].correct, c[problem.id].n) for c in counts]),
                "sides": [
                    {"n": c[problem.id].n, "right": c[problem.id].correct, "replies": r.get(problem.id, [])}
                    for c, r in zip(counts, kept, strict=True)
                ],
            }


def _replies(place: Path, most: int) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for sample in read_samples(place):
        if len(rows := found.setdefault(sample.problem_id, [])) < most:
            rows.append(reply_row(sample))
    return found


def reply_row(sample: SampleResult) -> dict[str, Any]:
    """A reply as the page's script shows it."""
    judgement = sample.judgement
    cases = judgement.cases if judgement else []
    return {
        "index": sample.index,
        "verdict": judgement.verdict.value if judgement else "failed",
        "reason": clipped(sample.error or (judgement.reason if judgement else "")),
        "error_line": error_line(judgement.verdict, judgement.reason) if judgement else None,
        "finish": sample.finish_reason,
        "tokens": sample.tokens,
        "text": clipped(sample.text),
        "program": None if sample.program is None else clipped(sample.program),
        "more": max(0, len(cases) - MOST_CASES),
        "cases": case_rows(cases[:MOST_CASES], clipped),
    }


def prompt_text(prompt: Prompt | None) -> str:
    """How a problem was put to the model, as a page shows it."""
    if prompt is None:
        return "not kept"
    turns = [f"[{turn['role']}]\n{turn['content']}" for turn in prompt.messages()]
    begun = [f"[the reply begins with]\n{prompt.prefix}"] if prompt.prefix else []
    return clipped("\n\n".join([*(turns if prompt.chat else [prompt.user]), *begun]))


def clipped(text: str) -> str:
    """A text of at most ``MOST_HEAD + MOST_TAIL`` characters, or its two ends."""
    left_out = len(text) - MOST_HEAD - MOST_TAIL
    if left_out <= 0:
        return text
    return f"{text[:MOST_HEAD]}\n… {left_out} characters left out …\n{text[-MOST_TAIL:]}"
