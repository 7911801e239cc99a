# ruff: noqa: E501  (programs and replies are as long as they are)
"""Replies in the shapes that models write, each with the program that is meant by it.

Programs (what is asked for, and how it is used) times shapes (how a reply wraps it). A shape may want a program
of one kind only: one that is called, or one that reads its input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Asked:
    """A program, the names that tests call (none: it reads input), and what models like to add to it."""

    title: str
    code: str
    names: frozenset[str] = frozenset()
    usage: str = ""
    output: str = "3"
    wrong: str = ""
    """A first try that is given up later in the reply."""
    language: str = "python"
    tag: str = "python"


@dataclass(frozen=True)
class Reply:
    """A reply and the program that is meant."""

    shape: str
    asked: Asked
    text: str
    program: str = field(default="")

    @property
    def title(self) -> str:
        return f"{self.shape} / {self.asked.title}"


ADD = Asked(
    "add",
    "def add(a: int, b: int) -> int:\n    return a + b\n",
    frozenset({"add"}),
    "print(add(1, 2))  # 3\nprint(add(-1, 1))  # 0\n",
    wrong="def add(a, b):\n    return a - b\n",
)
WORDS = Asked(
    "most common word",
    "from collections import Counter\n\n\ndef most_common(text):\n    counts = Counter(text.lower().split())\n"
    "    best = max(counts.values())\n    return sorted(w for w, c in counts.items() if c == best)[0]\n",
    frozenset({"most_common"}),
    'assert most_common("a b a") == "a"\nassert most_common("x") == "x"\nprint("All tests passed!")\n',
    output="All tests passed!",
    wrong="def most_common(text):\n    return text.split()[0]\n",
)
SOLUTION = Asked(
    "two sum",
    "class Solution:\n    def twoSum(self, nums: list[int], target: int) -> list[int]:\n        seen = {}\n"
    "        for i, x in enumerate(nums):\n            if target - x in seen:\n"
    "                return [seen[target - x], i]\n            seen[x] = i\n        return []\n",
    frozenset({"Solution"}),
    "solution = Solution()\nprint(solution.twoSum([2, 7, 11, 15], 9))  # [0, 1]\n",
    output="[0, 1]",
    wrong="class Solution:\n    def twoSum(self, nums, target):\n        return [0, 1]\n",
)
STACK = Asked(
    "a stack",
    'class MinStack:\n    """A stack that knows its minimum."""\n\n    def __init__(self):\n        self.items = []\n\n'
    "    def push(self, x):\n        low = min(x, self.items[-1][1]) if self.items else x\n"
    "        self.items.append((x, low))\n\n    def low(self):\n        return self.items[-1][1]\n",
    frozenset({"MinStack"}),
    "stack = MinStack()\nstack.push(3)\nprint(stack.low())\n",
    wrong="class MinStack:\n    pass\n",
)
SUM = Asked(
    "sum",
    "n = int(input())\nprint(sum(map(int, input().split())))\n",
    output="6",
    wrong="n = int(input())\nprint(n)\n",
)
PATHS = Asked(
    "paths",
    "import sys\nfrom collections import deque\n\n\ndef main():\n    data = sys.stdin.read().split()\n"
    "    n, m = int(data[0]), int(data[1])\n    adj = [[] for _ in range(n + 1)]\n    for i in range(m):\n"
    "        a, b = int(data[2 + 2 * i]), int(data[3 + 2 * i])\n        adj[a].append(b)\n        adj[b].append(a)\n"
    "    dist = [-1] * (n + 1)\n    dist[1] = 0\n    queue = deque([1])\n    while queue:\n        v = queue.popleft()\n"
    "        for w in adj[v]:\n            if dist[w] < 0:\n                dist[w] = dist[v] + 1\n"
    "                queue.append(w)\n    print(*dist[1:])\n\n\nif __name__ == '__main__':\n    main()\n",
    output="0 1 2",
    wrong="import sys\nprint(len(sys.stdin.read()))\n",
)
LOOP = Asked(
    "tests",
    "t = int(input())\nfor _ in range(t):\n    a, b = map(int, input().split())\n"
    '    print("YES" if a * 2 > b else "NO")\n',
    output="YES\nNO\nYES",
    wrong="for _ in range(int(input())):\n    input()\n    print('NO')\n",
)
CPP = Asked(
    "sum in C++",
    "#include <bits/stdc++.h>\nusing namespace std;\n\nint main() {\n    long long a, b;\n    cin >> a >> b;\n"
    "    cout << a + b << endl;\n    return 0;\n}\n",
    output="3",
    wrong="#include <iostream>\nint main() { std::cout << 3; }\n",
    language="cpp17",
    tag="cpp",
)
JAVA = Asked(
    "sum in Java",
    "import java.util.*;\n\npublic class Main {\n    public static void main(String[] args) {\n"
    "        Scanner in = new Scanner(System.in);\n        System.out.println(in.nextLong() + in.nextLong());\n    }\n}\n",
    wrong="public class Main {\n    public static void main(String[] args) { System.out.println(3); }\n}\n",
    language="java",
    tag="java",
)
RUST = Asked(
    "sum in Rust",
    "use std::io::{self, Read};\n\nfn main() {\n    let mut s = String::new();\n"
    "    io::stdin().read_to_string(&mut s).unwrap();\n"
    '    let sum: i64 = s.split_whitespace().map(|x| x.parse::<i64>().unwrap()).sum();\n    println!("{}", sum);\n}\n',
    wrong='fn main() {\n    println!("3");\n}\n',
    language="rust",
    tag="rust",
)
NODE = Asked(
    "sum in JavaScript",
    "const data = require('fs').readFileSync(0, 'utf8');\n"
    "console.log(data.split(/\\s+/).filter(Boolean).map(Number).reduce((a, b) => a + b, 0));\n",
    wrong="const data = require('fs').readFileSync(0, 'utf8');\nconsole.log(3);\n",
    language="javascript",
    tag="javascript",
)
GO = Asked(
    "sum in Go",
    'package main\n\nimport "fmt"\n\nfunc main() {\n\tvar a, b int\n\tfmt.Scan(&a, &b)\n\tfmt.Println(a + b)\n}\n',
    wrong='package main\n\nimport "fmt"\n\nfunc main() { fmt.Println(3) }\n',
    language="go",
    tag="go",
)

CALLED = (ADD, WORDS, SOLUTION, STACK)
READING = (SUM, PATHS, LOOP)
PYTHON = (*CALLED, *READING)
OTHERS = (CPP, JAVA, RUST, NODE, GO)
ALL = (*PYTHON, *OTHERS)

Shape = Callable[[Asked], str]
_SHAPES: list[tuple[str, tuple[Asked, ...], Shape]] = []


def _fence(code: str, tag: str = "", mark: str = "```") -> str:
    return f"{mark}{tag}\n{code}{mark}\n"


def _block(a: Asked) -> str:
    return _fence(a.code, a.tag)


def _shape(name: str, programs: tuple[Asked, ...], make: Shape) -> None:
    _SHAPES.append((name, programs, make))


_shape("a fence alone", ALL, _block)
_shape("prose around it", ALL, lambda a: f"Sure! Here is a solution:\n\n{_block(a)}\nIt runs in O(n) time.\n")
_shape("no tag", ALL, lambda a: f"Here you go:\n\n{_fence(a.code)}\nLet me know if you have questions!")
_shape("capital tag", PYTHON, lambda a: _fence(a.code, "Python"))
_shape("python3", PYTHON, lambda a: _fence(a.code, "python3"))
_shape("tilde fence", ALL, lambda a: _fence(a.code, a.tag, "~~~"))
_shape("cut before the closing fence", ALL, lambda a: f"```{a.tag}\n{a.code}")
_shape("title on the fence", PYTHON, lambda a: f'```python title="solution.py"\n{a.code}```\n')
_shape("attributes on the fence", PYTHON, lambda a: f"```{{.python .numberLines}}\n{a.code}```\n")
_shape("fence after prose", ALL, lambda a: f"The solution is as follows: ```{a.tag}\n{a.code}```\nDone.")
_shape(
    "prose behind the closing fence", PYTHON, lambda a: f"```python\n{a.code}``` This solves the problem.\n"
)
_shape("closing fence behind code", PYTHON, lambda a: f"```python\n{a.code.rstrip()}```")
_shape("byte-order mark", ALL, lambda a: f"\ufeff```{a.tag}\n{a.code}```\n")
_shape("zero-width space before the fence", ALL, lambda a: f"Answer:\n\u200b```{a.tag}\n{a.code}\u200b```\n")
_shape("byte-order mark in the fence", PYTHON, lambda a: f"```python\n\ufeff{a.code}```\n")
_shape("windows lines", ALL, lambda a: f"Here:\n\n{_block(a)}".replace("\n", "\r\n"))
_shape("lone carriage returns", ALL, lambda a: f"Here:\n\n{_block(a)}Done.".replace("\n", "\r"))
_shape(
    "list item",
    PYTHON,
    lambda a: "1. Code:\n   " + _block(a).replace("\n", "\n   ").rstrip() + "\n2. Done.\n",
)
_shape("wrapped in markdown", ALL, lambda a: f"````markdown\n# Solution\n{_block(a)}\nText.\n````\n")
_shape("fence twice", PYTHON, lambda a: f"```python\n```python\n{a.code}```\n")
_shape("two closing fences", PYTHON, lambda a: f"```python\n{a.code}```\n```\n")
_shape("answer tags of Llama", PYTHON, lambda a: f"[PYTHON]\n{a.code}[/PYTHON]\n")
_shape(
    "triple quotes",
    PYTHON,
    lambda a: f"Here is the code:\n'''python\n{a.code}'''\n" if "'''" not in a.code else "",
)
_shape("html", PYTHON, lambda a: f'<pre><code class="language-python">\n{a.code}</code></pre>\n')
_shape("no-break spaces", PYTHON, lambda a: _fence(a.code.replace("    ", "\xa0\xa0\xa0\xa0"), "python"))
_shape("indented whole", CALLED, lambda a: _fence("".join(f"  {x}\n" for x in a.code.splitlines()), "python"))

# No fence at all.
_shape("bare", ALL, lambda a: a.code)
_shape("bare after prose", ALL, lambda a: f"Here is the program that solves it.\n\n{a.code}")
_shape(
    "bare between prose",
    PYTHON,
    lambda a: f"To solve this we loop once.\n\n{a.code}\nThis works since it is simple.\n",
)
_shape(
    "bare, with a block that starts it",
    PYTHON,
    lambda a: f"Save as main.py.\n\n{a.code}\nRun it:\n{_fence('python main.py', 'bash')}",
)

# What follows or precedes it.
_shape("output after it, no tag", PYTHON, lambda a: f"{_block(a)}\nOutput:\n\n{_fence(a.output + chr(10))}")
_shape(
    "output after it, tagged", ALL, lambda a: f"{_block(a)}\nOutput:\n{_fence(a.output + chr(10), 'text')}"
)
_shape(
    "input and output, all without tags",
    PYTHON,
    lambda a: f"{_fence(a.code)}\nInput:\n{_fence('1 2' + chr(10))}Output:\n{_fence(a.output + chr(10))}",
)
_shape(
    "shell after it",
    ALL,
    lambda a: f"{_block(a)}\nRun it:\n{_fence('python3 main.py < in.txt' + chr(10), 'bash')}",
)
_shape(
    "shell after it, no tag",
    PYTHON,
    lambda a: f"{_block(a)}\nRun it:\n{_fence('$ python main.py' + chr(10))}",
)
_shape(
    "installation before it",
    PYTHON,
    lambda a: f"First:\n{_fence('pip install numpy' + chr(10), 'sh')}\n{_block(a)}",
)
_shape(
    "usage after it",
    CALLED,
    lambda a: f"{_block(a)}\nExample usage:\n\n{_fence(a.usage, 'python')}\nThat's it.",
)
_shape("usage after it, no tag", CALLED, lambda a: f"{_block(a)}\nExample:\n\n{_fence(a.usage)}")
_shape("usage before it", CALLED, lambda a: f"It is called so:\n{_fence(a.usage, 'python')}\n{_block(a)}")
_shape(
    "tests after it",
    CALLED,
    lambda a: (
        f"{_block(a)}\nTests:\n"
        + _fence(
            f"import unittest\nfrom solution import {min(a.names)}\n\n\nclass TestIt(unittest.TestCase):\n"
            f"    def test_it(self):\n        self.assertTrue({min(a.names)})\n\n\nunittest.main()\n",
            "python",
        )
    ),
)
_shape(
    "pytest after it",
    CALLED,
    lambda a: (
        f"{_block(a)}\n{_fence(f'def test_one():{chr(10)}    assert {min(a.names)} is not None{chr(10)}', 'python')}"
    ),
)
_shape(
    "a test that feeds it",
    READING,
    lambda a: (
        f"{_block(a)}\nTo try it:\n"
        + _fence(
            "import io, sys\nsys.stdin = io.StringIO('1\\n2 3\\n')\nexec(open('main.py').read())\n", "python"
        )
    ),
)
_shape(
    "a session after it",
    CALLED,
    lambda a: f"{_block(a)}\n{_fence(f'>>> {min(a.names)}' + chr(10) + '<...>' + chr(10), 'python')}",
)
_shape(
    "given up first try",
    ALL,
    lambda a: f"First idea:\n{_fence(a.wrong, a.tag)}\nThat fails. Instead:\n{_block(a)}",
)
_shape(
    "sketch in another language",
    PYTHON,
    lambda a: f"{_fence('int main() { return 0; }' + chr(10), 'cpp')}\n{_block(a)}",
)
_shape(
    "Python sketch first",
    OTHERS,
    lambda a: (
        f"In Python:\n{_fence('print(sum(map(int, input().split())))' + chr(10), 'python')}\nFinal:\n{_block(a)}"
    ),
)
_shape("cut second try", PYTHON, lambda a: f"{_block(a)}\nA shorter one:\n```python\nfor x in range(")
_shape(
    "complexity table",
    PYTHON,
    lambda a: f"{_block(a)}\n| n | t |\n|---|---|\n| 1 | 2 |\n\n`O(n)` overall, see ```this```.\n",
)
_shape(
    "json after it",
    PYTHON,
    lambda a: f"{_block(a)}\n{_fence('{' + chr(34) + 'a' + chr(34) + ': 1}' + chr(10), 'json')}",
)
_shape(
    "pseudo-code before it",
    PYTHON,
    lambda a: f"{_fence('for each x: do it' + chr(10) + 'return best' + chr(10))}\n{_block(a)}",
)
_shape(
    "thinking before it",
    ALL,
    lambda a: f"<think>\nMaybe\n{_fence(a.wrong, a.tag)}\nNo.\n</think>\n\n{_block(a)}",
)
_shape(
    "thinking begun by the template",
    ALL,
    lambda a: f"Let me see.\n{_fence(a.wrong, a.tag)}\n</think>\n{_block(a)}",
)
_shape("cut block in the thinking", PYTHON, lambda a: f"<think>\n```python\nx = \n</think>\n{_block(a)}")


# What models and templates put behind the closing fence.
for _behind in (
    *("</answer>", "</solution>", "</code>", "<|im_end|>", "<|eot_id|>", "</s>", "<｜end▁of▁sentence｜>"),
    *(".", ")", "**", ":", " Done", " Done.", "Done", " This solves the problem.", " It uses `heapq`."),
    *("<|endoftext|><|endoftext|>\n", " </answer>\n<|im_end|>", "</answer></s>"),
):
    _shape(
        f"{_behind!r} behind the closing fence",
        ALL,
        lambda a, behind=_behind: f"Here:\n```{a.tag}\n{a.code}```{behind}",
    )
    _shape(
        f"{_behind!r} behind the closing fence, and prose",
        ALL,
        lambda a, behind=_behind: f"```{a.tag}\n{a.code}```{behind}\nIt runs in O(n) time.\n",
    )
_shape("end token after prose", ALL, lambda a: f"{_block(a)}\nThat is all.<|im_end|>\n")
_shape("end token after bare code", PYTHON, lambda a: f"{a.code.rstrip()}<|im_end|>")
_shape("end token after an open fence", PYTHON, lambda a: f"```python\n{a.code.rstrip()}</s>")
_shape("answer tags around the block", ALL, lambda a: f"<answer>\n{_block(a)}</answer>")
_shape(
    "end of the answer behind a fence that another block follows",
    ALL,
    lambda a: f"```{a.tag}\n{a.wrong or a.code}```.\nBetter:\n```{a.tag}\n{a.code}```</answer>",
)

# Prose that mentions the tags of thinking.
_shape(
    "prose mentions the thinking",
    ALL,
    lambda a: f"{_block(a)}\nMy reasoning is in the <think> block above.\n",
)
_shape(
    "prose mentions the thinking before the block",
    ALL,
    lambda a: f"As said in the <think> part, we loop.\n\n{_block(a)}",
)
_shape("quoted tag of thinking", ALL, lambda a: f"{_block(a)}\nI put `<think>` first.\n")
_shape("quoted tag at the start of a line", ALL, lambda a: f"{_block(a)}\n`<think>` is not used here.\n")
_shape("quoted end of thinking", ALL, lambda a: f"{_block(a)}\nNo `</think>` was needed.\n")
_shape(
    "thinking, then prose that mentions it",
    ALL,
    lambda a: f"<think>\nHm.\n</think>\n{_block(a)}\nThe <think> section explains why.\n",
)
_shape(
    "thinking of the template, then prose that mentions it",
    ALL,
    lambda a: f"Hm.\n</think>\nAs my <think> says:\n{_block(a)}",
)

# Blocks with the tag of no language, and fences that are never closed.
for _tag in ("text", "code", "pypy3", "ipython", "py2", "plaintext", "solution", "txt"):
    _shape(f"a block tagged {_tag}", ALL, lambda a, tag=_tag: f"Here:\n{_fence(a.code, tag)}Done.\n")
_shape(
    "a block tagged code, then its output tagged text",
    PYTHON,
    lambda a: f"{_fence(a.code, 'code')}\n{_fence(a.output + chr(10), 'text')}",
)
_shape(
    "a first try tagged text, then a block of the language",
    PYTHON,
    lambda a: f"{_fence(a.wrong, 'text')}\n{_block(a)}",
)
_shape(
    "a block of the language, then a first try tagged text",
    PYTHON,
    lambda a: f"{_block(a)}\nThis did not work:\n{_fence(a.wrong, 'text')}",
)
for _prose in (
    "This function runs in O(n) time.",
    "Explanation:\n- It's simple.\n- We don't sort.",
    "Complexity: O(n)\nIt loops once.",
    "**Explanation**\n\nWe loop (once), so it's fast.\n\n1. First\n2. Second",
    "Done",
    "The \"best\" way isn't obvious; it's this:\n  loop once.",
):
    _shape(
        f"never closed, then {_prose.split(maxsplit=1)[0]!r} of prose",
        (*PYTHON, CPP, JAVA, RUST, GO),
        lambda a, prose=_prose: f"Here:\n```{a.tag}\n{a.code}\n{prose}\n",
    )


def _special() -> Iterator[Reply]:
    """Replies of which a shape cannot be made: the program itself is what is odd, or comes in pieces."""
    fenced = Asked(
        "fences in a docstring",
        'def add(a, b):\n    """Add.\n\n    ```python\n    add(1, 2)\n    ```\n    """\n    return a + b\n',
        frozenset({"add"}),
    )
    lines = Asked(
        "fences in an f-string",
        'def add(a, b):\n    text = f"""\n```\n{a}\n```\n"""\n    return a + b if text else 0\n',
        frozenset({"add"}),
    )
    said = Asked(
        "a tag in a string", 'def add(a, b):\n    end = "</think>"\n    return a + b\n', frozenset({"add"})
    )
    begun = Asked(
        "a tag that opens", 'def add(a, b):\n    tag = "<think>"\n    return a + b\n', frozenset({"add"})
    )
    for asked in (fenced, lines, said, begun):
        yield Reply("alone", asked, _block(asked), asked.code)
        yield Reply("between prose", asked, f"Here:\n\n{_block(asked)}\nDone.\n", asked.code)
        yield Reply(
            "usage after it", asked, f"{_block(asked)}\n```python\nprint(add(1, 2))\n```\n", asked.code
        )
        yield Reply("after thinking", asked, f"<think>\nHm.\n</think>\n{_block(asked)}", asked.code)
    for number, (asked, head, tail) in enumerate(_pieces()):
        whole = f"{head}\n{tail}"
        named = Asked(f"pieces {number}", whole, asked.names)
        text = f"The parts are:\n{_fence(head, 'python')}\nand\n{_fence(tail, 'python')}\n"
        yield Reply("in two blocks", named, text, whole)
        yield Reply("in two blocks, output after them", named, text + f"\n{_fence('3' + chr(10))}", whole)
        yield Reply("in two blocks, tests between", named, _with_tests_between(head, tail), whole)
    yield from _one_line()
    body = Asked("a body", "    best = max(xs)\n    return best\n", frozenset({"largest"}))
    yield Reply("alone", body, _block(body), body.code)
    yield Reply(
        "usage after it", body, f"{_block(body)}\n```python\nprint(largest([1, 2]))\n```\n", body.code
    )
    struct = "#include <bits/stdc++.h>\nusing namespace std;\nstruct P { int x; };\n"
    main = "int main() {\n    P p{3};\n    cout << p.x;\n}\n"
    parts = Asked("C++ in two blocks", f"{struct}\n{main}", language="cpp17", tag="cpp")
    yield Reply("in two blocks", parts, f"{_fence(struct, 'cpp')}\nthen\n{_fence(main, 'cpp')}", parts.code)


def _with_tests_between(head: str, tail: str) -> str:
    tests = _fence("import unittest\n\n\nclass TestNothing(unittest.TestCase):\n    pass\n", "python")
    return f"{_fence(head, 'python')}\n{tests}\n{_fence(tail, 'python')}"


def _pieces() -> Iterator[tuple[Asked, str, str]]:
    yield ADD, "def plus(a, b):\n    return a + b\n", "def add(a, b):\n    return plus(a, b)\n"
    yield ADD, "def add(a, b):\n    return minus(a, -b)\n", "def minus(a, b):\n    return a - b\n"
    yield (
        SUM,
        "def solve(xs):\n    return sum(xs)\n",
        "n = int(input())\nprint(solve(list(map(int, input().split()))))\n",
    )
    yield PATHS, "import sys\n", "print(len(sys.stdin.read().split()))\n"
    yield SUM, "n = int(input())\nxs = list(map(int, input().split()))\n", "print(sum(xs))\n"
    yield STACK, "class Node:\n    pass\n", "class MinStack(Node):\n    pass\n"


def _one_line() -> Iterator[Reply]:
    code = "print(sum(map(int, input().split())))\n"
    asked = Asked("one line", code)
    yield Reply("fence on one line", asked, f"```python {code.strip()}```", code)
    yield Reply("program begins on the fence", asked, f"```python n = 1\n{code}```\n", f"n = 1\n{code}")
    yield Reply("def begins on the fence", ADD, f"```python {ADD.code}```\n", ADD.code)
    yield Reply("import begins on the fence", PATHS, f"```python {PATHS.code}```\n", PATHS.code)


def replies() -> list[Reply]:
    """The whole corpus."""
    made = [Reply(name, a, make(a), a.code) for name, programs, make in _SHAPES for a in programs]
    return [*(reply for reply in made if reply.text), *_special()]


def no_programs() -> list[tuple[str, str]]:
    """Replies without a program, with their names."""
    return [
        ("refusal", "I'm sorry, but I can't help with that."),
        ("question", "Could you tell me what the input looks like?"),
        ("prose", "We use dynamic programming. For each i, take the best of the two. Return it at the end."),
        ("a number", "42"),
        ("a formula", "The answer is n * (n + 1) / 2 = 55."),
        ("thinking that never ends", f"<think>\n{_block(ADD)}"),
        ("other language", "```cpp\nint main() {}\n```\n"),
        ("empty block", "```python\n\n```"),
        ("shell only", "```bash\npip install numpy\n```\n"),
    ]
