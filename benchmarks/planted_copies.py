"""Copies of benchmark problems, disguised in thirteen ways, five of each: what decontamination has to find.

Eleven of the disguises are scripts over rows that a seed draws, half of them HumanEval's and half MBPP's; for
paraphrases and stories the words are written here, for rows that are named. None keeps more of its original
than its disguise says: where only the statement is copied, the tests and the solution are another task's.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Sequence

from whetstone.core.problem import AssertTests, CallCase, CallTests, Problem, Program, StdinCase, StdinTests

EACH = 5
Disguise = Callable[[Problem, random.Random], Problem]

_OTHER_TESTS = CallTests([CallCase(n * 7 + 3, [n, 7, 3]) for n in (40, 51, 62, 73, 84, 95)], "planted")
_OTHER_SOLUTION = Program("python", "def planted(n, a, b):\n    return n * a + b\n")
_OTHER_STATEMENT = (
    "The harbour master wants a number from your program. See the tests for what is expected of it."
)

_WORDS = {
    "list": "sequence", "array": "sequence", "string": "text", "integers": "whole numbers",
    "integer": "whole number", "number": "value", "numbers": "values", "find": "determine",
    "check": "test", "return": "output", "returns": "outputs", "function": "routine",
    "elements": "items", "element": "item", "remove": "delete", "largest": "biggest",
    "maximum": "biggest", "smallest": "least", "minimum": "least", "given": "supplied", "word": "term",
    "words": "terms", "character": "letter", "characters": "letters", "sum": "total",
    "convert": "turn", "sorted": "ordered", "sort": "order", "reverse": "invert", "whether": "if",
    "difference": "gap", "common": "shared", "shared": "common", "count": "tally", "replace": "swap",
    "write": "create", "create": "build", "calculate": "work out", "order": "sequence",
    "positive": "above-zero", "first": "initial", "contains": "holds", "between": "within",
    "unique": "distinct", "equal": "identical", "vowels": "the letters a, e, i, o, u",
    "length": "size", "python": "short", "every": "each", "all": "every",
}  # fmt: skip
_PARAPHRASES = {
    "humaneval/70": (
        "Shuffle the values like this: pick the minimum of what remains, then its maximum, then "
        "again its minimum, and go on in turn until nothing remains. Report the values as they "
        "were picked."
    ),
    "humaneval/68": (
        "A branch of a tree carries nodes with whole numbers that are not negative. Among the "
        "even ones look for the least (the leftmost if it is there twice) and hand back a pair: "
        "it, and where it stands. Nothing to pick gives an empty list."
    ),
    "mbpp/94": "Every record holds a name and a score. Whose score is the worst? Hand back that name.",
    "mbpp/265": (
        "Deal cards round a table of k players, the first card to the first player, and show each "
        "player's hand."
    ),
    "mbpp/772": "Shorten a sentence: whatever in it has precisely k letters between blanks is left out.",
}
_STORIES = {
    "humaneval/120": (
        "Ein Händler kennt die Gewinne seiner Tage und möchte die k besten davon sehen, den kleinsten zuerst."
    ),
    "humaneval/11": (
        "Dos faros emiten señales de unos y ceros. El vigía anota un uno cuando las dos señales "
        "no coinciden y un cero cuando coinciden. ¿Qué anota?"
    ),
    "mbpp/632": (
        "Im Regal stehen Kisten mit Zahlen. Leere Kisten tragen eine 0 und sollen ganz nach "
        "rechts, die anderen bleiben in ihrer Reihenfolge."
    ),
    "mbpp/740": (
        "Un facteur range des lettres deux par deux : la première donne l'adresse, la seconde le "
        "contenu. Rendez son carnet."
    ),
    "mbpp/594": (
        "Zwei Kinder ziehen an einer Schnur mit Zahlen: eines nimmt die vorderste gerade, das "
        "andere die vorderste ungerade. Um wie viel ist die gerade größer?"
    ),
}


def planted(problems: Sequence[Problem], seed: int) -> list[tuple[str, str, Problem]]:
    """The kind, the id of the original and the copy, for every kind."""
    found: list[tuple[str, str, Problem]] = []
    by_id = {problem.id: problem for problem in problems}
    sources = sorted({problem.id.split("/")[0] for problem in problems})
    for kind, (disguise, fits) in _KINDS.items():
        rng = random.Random(f"{seed} {kind}")
        pools = {
            s: rng.sample(rows, len(rows))
            for s in sources
            if (rows := [p for p in problems if p.id.startswith(s) and fits(p)])
        }
        for number in range(EACH):
            original = pools[sources[number % len(sources)]].pop()
            found.append((kind, original.id, _renamed(disguise(original, rng), kind, number)))
    for kind, texts in (
        ("paraphrase, half the tests", _PARAPHRASES),
        ("translated story, its cases", _STORIES),
    ):
        for number, (name, text) in enumerate(texts.items()):
            tests = _kept_tests(
                by_id[name], 0.6 if kind.startswith("paraphrase") else 1.0, random.Random(seed)
            )
            copy = Problem(name, text, tests, references=[_OTHER_SOLUTION])
            found.append((kind, name, _renamed(copy, kind, number)))
    return found


def _renamed(problem: Problem, kind: str, number: int) -> Problem:
    name = f"planted/{kind.replace(', ', '-').replace(' ', '-')}/{number}"
    return Problem(name, problem.statement, problem.tests, references=problem.references, source="planted")


def _text(problem: Problem) -> str:
    """The words of a task: what MBPP asks, or HumanEval's docstring without its examples."""
    text = problem.statement.split("Your code should pass")[0]
    found = re.search(r'("""|\'\'\')(.*?)(>>>|For example|Example|For the|\1)', text, re.DOTALL)
    return " ".join((found[2] if found else text).split())


def _only_text(text: str) -> Problem:
    return Problem("x", text, _OTHER_TESTS, references=[_OTHER_SOLUTION])


def _verbatim(problem: Problem, rng: random.Random) -> Problem:
    return _only_text(problem.statement)


def _identifiers(problem: Problem, rng: random.Random) -> Problem:
    """The statement with function and parameters renamed, examples and all."""
    tree = ast.parse(problem.references[0].source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names = [name for f in functions for name in (f.name, *(a.arg for a in f.args.args))]
    text = problem.statement
    for number, name in enumerate(names):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", f"thing_{number}", text) if len(name) > 1 else text
    return _only_text(text)


def _light_edits(problem: Problem, rng: random.Random) -> Problem:
    """One word in six left out, written wrong, or put before its neighbour."""
    words = _text(problem).split()
    for at in range(rng.randrange(3), len(words) - 1, 6):
        kind = rng.randrange(3)
        if kind == 0:
            words[at] = ""
        elif kind == 1:
            words[at] = words[at][:1] + words[at][2:]
        else:
            words[at], words[at + 1] = words[at + 1], words[at]
    return _only_text(" ".join(word for word in words if word))


def _reordered(problem: Problem, rng: random.Random) -> Problem:
    """Sentences in another order; of a single one, its second half first."""
    text = _text(problem)
    sentences = re.split(r"(?<=[.!?])\s+", text)
    if len(sentences) > 1:
        return _only_text(" ".join([*sentences[1:], sentences[0]]))
    words = text.rstrip(".").split()
    middle = len(words) // 2
    return _only_text(f"{' '.join(words[middle:])}: {' '.join(words[:middle])}.")


def _synonyms(problem: Problem, rng: random.Random) -> Problem:
    return _only_text(re.sub(r"[A-Za-z]+", lambda m: _WORDS.get(m[0].lower(), m[0]), _text(problem)))


def _stdin(problem: Problem, rng: random.Random) -> Problem:
    """The cases as programs read them: a list after its length, one value a line."""
    cases = [
        StdinCase("\n".join(map(_line, args)) + "\n", _line(result, counted=False))
        for args, result in _plain_cases(problem)
    ]
    statement = (
        "Read the data of a caravan, lists after their lengths, and print what its leader wants to know."
    )
    return Problem("x", statement, StdinTests(cases), references=[_OTHER_SOLUTION])


def _only_tests(problem: Problem, rng: random.Random) -> Problem:
    return Problem("x", _OTHER_STATEMENT, _kept_tests(problem, 1.0, rng), references=[_OTHER_SOLUTION])


def _only_solution(problem: Problem, rng: random.Random) -> Problem:
    """The solution with its own names changed, without comments and annotations."""
    tree = ast.parse(problem.references[0].source)
    own = {a.arg for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) for a in n.args.args}
    own |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.name, node.returns = f"x_{node.name}", None
        elif isinstance(node, ast.arg):
            node.arg, node.annotation = f"x_{node.arg}", None
        elif isinstance(node, ast.Name) and node.id in own:
            node.id = f"x_{node.id}"
    return Problem("x", _OTHER_STATEMENT, _OTHER_TESTS, references=[Program("python", ast.unparse(tree))])


def _three_of_four(problem: Problem, rng: random.Random) -> Problem:
    """Three of the cases and a fourth of its own, without the words of the statement."""
    kept = rng.sample(_plain_cases(problem), 3)
    calls = [f"assert handle({', '.join(map(repr, args))}) == {result!r}" for args, result in kept]
    own = repr(kept[0][0][0] if kept[0][0] else 0)
    calls.insert(rng.randrange(4), f"assert handle({own}, 'planted', 7391) == 'nothing'")
    return Problem("x", _OTHER_STATEMENT, AssertTests(asserts=calls), references=[_OTHER_SOLUTION])


def _unittest(problem: Problem, rng: random.Random) -> Problem:
    """The cases as a class of unit tests, without the words of the statement."""
    lines = [
        f"        self.assertEqual(handle({', '.join(map(repr, args))}), {result!r})"
        for args, result in _plain_cases(problem)
    ]
    code = "\n".join(["import unittest", "class Test(unittest.TestCase):", "    def test_it(self):", *lines])
    return Problem("x", _OTHER_STATEMENT, AssertTests(unittest=code), references=[_OTHER_SOLUTION])


def _part(problem: Problem, rng: random.Random) -> Problem:
    """The statement within a longer one."""
    before = (
        "A travelling theatre keeps its books on paper, and the new director would like to have them on a "
        "machine. She has hired you for a week. On the first day you are shown around and given tea."
    )
    after = (
        "Be quick: the next town is far away, and the wagons leave at dawn. The director pays for every book "
        "that is ready by then, and nothing for one that is not. There may be up to 100000 entries in a book."
    )
    return _only_text(f"{before} {_text(problem)} {after}")


def _kept_tests(problem: Problem, share: float, rng: random.Random) -> AssertTests:
    """That share of the asserts, at least, about a function of another name."""
    tests = problem.tests
    assert isinstance(tests, AssertTests)
    tree = ast.parse(tests.check or "\n".join(tests.asserts or []))
    asserts = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and any(isinstance(n, ast.Call) for n in ast.walk(node))
    ]
    kept = rng.sample(asserts, -int(-share * len(asserts) // 1))
    own = (
        "candidate"
        if tests.check
        else (tests.entry_point or ast.parse(problem.references[0].source).body[-1].name)
    )  # type: ignore[attr-defined]
    own = own if tests.check else _called(kept[0])
    texts = [re.sub(rf"\b{re.escape(own)}\b", "handle", ast.unparse(node)) for node in kept]
    return AssertTests(asserts=texts, setup=tests.setup)


def _called(node: ast.Assert) -> str:
    calls = [n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return next(name for name in calls if name not in ("set", "sorted", "tuple", "list", "abs"))


def _plain_cases(problem: Problem) -> list[tuple[list[object], object]]:
    tests = problem.tests
    assert isinstance(tests, AssertTests)
    cases: list[tuple[list[object], object]] = []
    for node in ast.walk(ast.parse(tests.check or "\n".join(tests.asserts or []))):
        if (
            isinstance(node, ast.Assert)
            and isinstance(node.test, ast.Compare)
            and isinstance(node.test.left, ast.Call)
        ):
            try:
                args = [ast.literal_eval(argument) for argument in node.test.left.args]
                cases.append((args, ast.literal_eval(node.test.comparators[0])))
            except ValueError:
                continue
    return cases


def _line(value: object, counted: bool = True) -> str:
    if isinstance(value, list | tuple):
        text = " ".join(_line(item, counted=False) for item in value)
        return f"{len(value)}\n{text}" if counted else text
    return str(value)


def _any(problem: Problem) -> bool:
    return True


def _long(problem: Problem) -> bool:
    """Whether the solution has at least four statements beside its docstring."""
    nodes = ast.walk(ast.parse(problem.references[0].source))
    return (
        sum(
            isinstance(n, ast.stmt)
            and not isinstance(n, ast.Expr | ast.FunctionDef | ast.Import | ast.ImportFrom)
            for n in nodes
        )
        >= 4
    )


def _readable(problem: Problem) -> bool:
    cases = _plain_cases(problem)
    return len(cases) >= 3 and all(
        isinstance(v, int | float | str | list | tuple) for args, result in cases for v in (*args, result)
    )


_KINDS: dict[str, tuple[Disguise, Callable[[Problem], bool]]] = {
    "verbatim": (_verbatim, _any),
    "renamed identifiers": (_identifiers, _any),
    "light edits": (_light_edits, _any),
    "reordered": (_reordered, _any),
    "synonyms": (_synonyms, _any),
    "stdin form": (_stdin, _readable),
    "only the tests": (_only_tests, _any),
    "three of four cases": (_three_of_four, _readable),
    "unit tests": (_unittest, _readable),
    "only the solution": (_only_solution, _long),
    "part of a longer statement": (_part, _any),
}
