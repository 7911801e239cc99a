"""Five small programs that read standard input, with inputs drawn for them: tens to hundreds of characters,
as most test cases of public problem sets have."""

from __future__ import annotations

import random
from collections.abc import Callable

_SUM = """
n = int(input())
print(sum(map(int, input().split())))
"""

_SUBARRAY = """
import sys

def best(values):
    top = here = values[0]
    for value in values[1:]:
        here = max(value, here + value)
        top = max(top, here)
    return top

data = sys.stdin.read().split()
print(best(list(map(int, data[1:]))))
"""

_BRACKETS = """
def balanced(text):
    pairs = {")": "(", "]": "[", "}": "{"}
    stack = []
    for char in text:
        if char in pairs.values():
            stack.append(char)
        elif not stack or stack.pop() != pairs[char]:
            return False
    return not stack

for _ in range(int(input())):
    print("YES" if balanced(input().strip()) else "NO")
"""

_DIJKSTRA = """
import heapq
import sys
from collections import defaultdict

def distances(graph, start, n):
    best = [float("inf")] * (n + 1)
    best[start] = 0
    queue = [(0, start)]
    while queue:
        cost, at = heapq.heappop(queue)
        if cost > best[at]:
            continue
        for to, weight in graph[at]:
            if cost + weight < best[to]:
                best[to] = cost + weight
                heapq.heappush(queue, (best[to], to))
    return best[1:]

def main():
    n, m = map(int, sys.stdin.readline().split())
    graph = defaultdict(list)
    for _ in range(m):
        a, b, w = map(int, sys.stdin.readline().split())
        graph[a].append((b, w))
        graph[b].append((a, w))
    print(*[d if d < float("inf") else -1 for d in distances(graph, 1, n)])

main()
"""

_WORDS = """
import sys
from collections import Counter

class Index:
    def __init__(self):
        self.counts = Counter()

    def add(self, line):
        self.counts.update(line.lower().split())

    def top(self, k):
        return sorted(self.counts.items(), key=lambda entry: (-entry[1], entry[0]))[:k]

if __name__ == "__main__":
    index = Index()
    k = int(sys.stdin.readline())
    for line in sys.stdin:
        index.add(line)
    for word, count in index.top(k):
        print(f"{word}: {count}")
"""


def _numbers(draw: random.Random) -> str:
    values = [draw.randint(-1000, 1000) for _ in range(draw.randint(1, 100))]
    return f"{len(values)}\n{' '.join(map(str, values))}\n"


def _brackets(draw: random.Random) -> str:
    lines = ["".join(draw.choice("()[]{}") for _ in range(draw.randint(2, 20))) for _ in range(10)]
    return "\n".join(["10", *lines]) + "\n"


def _graph(draw: random.Random) -> str:
    edges = [(draw.randint(1, 20), draw.randint(1, 20), draw.randint(1, 1000)) for _ in range(40)]
    return "20 40\n" + "".join(f"{a} {b} {w}\n" for a, b, w in edges)


def _text(draw: random.Random) -> str:
    words = ["".join(draw.choices("abcdef", k=draw.randint(1, 3))) for _ in range(60)]
    lines = [" ".join(words[i : i + 6]) for i in range(0, 60, 6)]
    return "\n".join(["5", *lines]) + "\n"


PROGRAMS: dict[str, tuple[str, Callable[[random.Random], str]]] = {
    "sum": (_SUM, _numbers),
    "subarray": (_SUBARRAY, _numbers),
    "brackets": (_BRACKETS, _brackets),
    "dijkstra": (_DIJKSTRA, _graph),
    "words": (_WORDS, _text),
}
"""Name: (source, what draws an input)."""
