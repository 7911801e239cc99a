"""Signs that a run learns nothing or loses its replies, found in the metrics of its steps.

``SIGNS`` is the only list: the terminal prints its rows, ``metrics.jsonl`` has ``sign/NAME: 1`` in the steps
in which a row holds, and the page shows those steps. They depend on recorded metrics only, so a resumed run
finds the same ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import fsum
from typing import Any

from msgspec import Struct

from whetstone.core.verdict import Verdict
from whetstone.report.metrics import Record

WINDOW = 5
"""A sign holds for the last so many steps together."""
KEY = "sign/"
_NEARLY_ALL, _MANY, _SOME = 0.95, 0.2, 0.1

Share = Callable[[Sequence[Record]], float | None]
"""The share of replies or steps of some train records that a sign is about; None if it is not known."""


class RunSign(Struct, frozen=True):
    """A row: the sign holds if ``share`` of the last steps is at least ``bound``.

    The sentence has the share as ``{share}``. Each remedy names what to change.
    """

    name: str
    share: Share
    bound: float
    sentence: str
    remedy: str


def _share(part: str, *whole: str, without: str = "") -> Share:
    """Return the share that compares sums over steps: of ``part`` less ``without``, and of the keys in
    ``whole``."""

    def share(records: Sequence[Record]) -> float | None:
        total = _sum(records, *whole)
        return (_sum(records, part) - _sum(records, without)) / total if total else None

    return share


def _untrained(records: Sequence[Record]) -> float | None:
    """Return the share of steps in which nothing had a gradient."""
    known = [each for each in records if "loss/updates" in each]
    none = sum(not each.get("loss/grad_norm") and not each.get("loss/skipped") for each in known)
    return none / len(known) if known else None


def _sum(records: Sequence[Record], *keys: str) -> float:
    return fsum(record.get(key, 0.0) for record in records for key in keys)


_REPLIES = "sample/replies"
_VERDICTS = [f"verdict/{verdict.value}" for verdict in Verdict]
_READ = "Read some replies (`whetstone view`)"
SIGNS = (
    RunSign(
        "cut",
        _share("sample/cut", _REPLIES),
        _NEARLY_ALL,
        "{share} of the replies were cut at the token limit",
        "Raise `sampling.max_tokens`. If the replies were complete before it, the model does not end them: "
        "set `sampling.stop` or `model.format`.",
    ),
    RunSign(
        "no_code",
        _share("verdict/no_code", *_VERDICTS),
        _NEARLY_ALL,
        "{share} of the replies have no program",
        f"{_READ}: the prompt must ask for the form that `environment.extraction` finds. Change "
        "`environment.prompt`, `environment.prefix` or `environment.extraction`. Thinking that does not end "
        "has no program either: raise `sampling.max_tokens`.",
    ),
    RunSign(
        "compile_error",
        _share("verdict/compile_error", *_VERDICTS),
        _NEARLY_ALL,
        "{share} of the programs do not compile",
        f"{_READ}: if they are prose, or programs with text around them, change `environment.extraction` or "
        "`environment.prompt`; if they are of another language, name the language in the prompt.",
    ),
    RunSign(
        "runtime_error",
        _share("verdict/runtime_error", *_VERDICTS),
        _NEARLY_ALL,
        "{share} of the programs crash",
        "Read the reasons of the judge (`whetstone view`): a missing package belongs into the packages of "
        "`judge.environment`, and the name that the tests call belongs into the prompt (`{starter}`).",
    ),
    RunSign(
        "time_limit",
        _share("verdict/time_limit", *_VERDICTS),
        _NEARLY_ALL,
        "{share} of the programs exceed their time limit",
        "Check the limits of the problems: `whetstone data validate` judges their references with them.",
    ),
    RunSign(
        "special_tokens",
        _share("sample/special_tokens", _REPLIES),
        _MANY,
        "{share} of the replies contain special tokens before their end",
        "The model does not stop where its chat template ends a turn, or its marks are not known: set "
        '`model.format` to its family, or `sampling.stop` to the text of the token, such as ["<|im_end|>"].',
    ),
    RunSign(
        "no_reward",
        _share("sample/unscored", _REPLIES, without="sample/shared_interpreter"),
        _SOME,
        "{share} of the replies have no reward, because they could not be judged or were not finished",
        "They are not trained on. Their reasons are in `whetstone view`. `whetstone doctor` tests this "
        "machine's judge; with `judge.url`, look at the judge's log. Broken checkers are found by "
        "`whetstone data validate`.",
    ),
    RunSign(
        "forgeable",
        _share("sample/shared_interpreter", _REPLIES),
        _SOME,
        "{share} of the replies have no reward, because their programs could have forged the verdict",
        "Their tests need the program's own interpreter. Drop such problems (`whetstone data validate` "
        "marks them), or accept the risk with `judge.score_shared_interpreter: true`.",
    ),
    RunSign(
        "bad_gradient",
        _share("loss/skipped", "loss/skipped", "loss/updates"),
        _SOME,
        "{share} of the updates were skipped, because their gradient was not finite",
        "Lower `trainer.lr` or `trainer.grad_clip`, or set `model.dtype: float32`.",
    ),
    RunSign(
        "no_signal",
        _untrained,
        1.0,
        "no step changed the model: in each group the rewards of all replies are equal, or missing",
        "If all replies fail, choose easier problems (`whetstone data difficulty`, `data.difficulty`), or "
        "begin with a warm-up or a model that sometimes solves them. If all are right, choose harder ones. "
        "More replies to a prompt (`trainer.samples_per_prompt`) or a higher `sampling.temperature` make "
        "different rewards likelier.",
    ),
)


def found_signs(records: Sequence[Record]) -> dict[str, str]:
    """Return the signs that hold over all of the train records together: a sentence with its remedy by
    name."""
    trained = [record for record in records if record["kind"] == "train"]
    steps = " to ".join(dict.fromkeys(str(each["step"]) for each in (*trained[:1], *trained[-1:])))
    found: dict[str, str] = {}
    for sign in SIGNS:
        share = sign.share(trained)
        if share is not None and share >= sign.bound:
            sentence = sign.sentence.format(share=f"{share:.0%}")
            found[sign.name] = f"steps {steps}: {sentence}. {sign.remedy}"
    return found


class SignWatch:
    """The signs of a run in progress. ``records``: those that are in its file already."""

    def __init__(self, records: Iterable[Record]) -> None:
        trained = (record for record in records if record["kind"] == "train")
        self._recent = deque(trained, 2 * WINDOW)

    def add(self, record: dict[str, Any]) -> list[str]:
        """Add the keys of the signs to a train record. Return the texts of those that did not hold in any of
        the ``WINDOW`` steps before."""
        window = [*self._recent, record][-WINDOW:]
        found = found_signs(window) if len(window) == WINDOW else {}
        before = {key for each in [*self._recent][-WINDOW:] for key in each if key.startswith(KEY)}
        record |= {f"{KEY}{name}": 1 for name in found}
        self._recent.append(record)
        return [text for name, text in found.items() if f"{KEY}{name}" not in before]


def sign_rows(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return for each sign in the train records of a run how often it held, and its text as of the last
    time."""
    rows: list[tuple[str, str]] = []
    for sign in SIGNS:
        places = [place for place, record in enumerate(records) if f"{KEY}{sign.name}" in record]
        if places:
            last = places[-1] + 1
            text = found_signs(records[max(0, last - WINDOW) : last]).get(sign.name, sign.remedy)
            rows.append((f"held {len(places)} times, first at step {records[places[0]]['step']}", text))
    return rows
