"""In the program's process: build linked lists and trees from lists, and reduce them to lists.

A program may define ``ListNode`` and ``TreeNode`` itself; arguments are then objects of its classes. It may
also return objects of any other class with the same attributes. Each attribute is read once, and the number
of nodes is limited, so a cycle ends.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from whetstone.judge.values import NotInert

MAX_NODES = 1_000_000
LISTS, TREES = "ListNode", "TreeNode"
_IN_LIST = "list["
_CLASSES = compile(
    """
class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next


class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val = val
        self.left = left
        self.right = right
""",
    "<nodes>",
    "exec",
)


def fresh_classes() -> dict[str, Any]:
    """Return new classes of nodes, so that no program finds what an earlier one changed in them."""
    scope: dict[str, Any] = {"__name__": "main"}
    exec(_CLASSES, scope)
    return {name: scope[name] for name in (LISTS, TREES)}


def build(form: str | None, value: Any, scope: dict[str, Any]) -> Any:
    """Return the argument for a value: a node, a list of nodes, or the value itself without a ``form``.

    ``scope`` holds the classes: those of the program, or ``fresh_classes``.
    """
    if form is None:
        return value
    if form.startswith(_IN_LIST):
        return [build(form[len(_IN_LIST) : -1], item, scope) for item in value]
    if not value:
        return None
    node_class = scope[form]
    if form == LISTS:
        head = None
        for item in reversed(value):
            node = node_class(item)
            node.next = head
            head = node
        return head
    items = iter(value)
    root = node_class(next(items))
    parents = deque([root])
    # Two values are read for each node: its left and its right child.
    while parents:
        parent = parents.popleft()
        for side in ("left", "right"):
            item = next(items, None)
            child = None if item is None else node_class(item)
            setattr(parent, side, child)
            if child is not None:
                parents.append(child)
    return root


def reduce(form: str, value: Any) -> list[Any]:
    """Return the list for a node, or for a list of nodes. None is empty. Raises NotInert for other
    objects."""
    if form.startswith(_IN_LIST):
        if type(value) is not list and type(value) is not tuple:
            raise NotInert(f"{_named(value)} where a list of {form[len(_IN_LIST) : -1]} is expected")
        return [reduce(form[len(_IN_LIST) : -1], item) for item in value]
    found: list[Any] = []
    if form == LISTS:
        while value is not None:
            found.append(_read(value, "val", form))
            value = _read(value, "next", form)
            _check_count(found, form)
        return found
    pending = deque([value])
    while pending:
        node = pending.popleft()
        if node is None:
            found.append(None)
            continue
        held = _read(node, "val", form)
        if held is None:
            # It would look like a missing child.
            raise NotInert("a TreeNode whose value is None")
        found.append(held)
        pending += (_read(node, "left", form), _read(node, "right", form))
        _check_count(found, form)
    while found and found[-1] is None:
        found.pop()
    return found


def _read(node: Any, name: str, form: str) -> Any:
    try:
        return getattr(node, name)
    except AttributeError:
        raise NotInert(f"{_named(node)} where a {form} is expected") from None


def _named(value: object) -> str:
    return f"a value of type {type.__getattribute__(type(value), '__name__')}"


def _check_count(found: list[Any], form: str) -> None:
    if len(found) > MAX_NODES:
        raise NotInert(f"a {form} with more than {MAX_NODES} nodes, or with a cycle")
