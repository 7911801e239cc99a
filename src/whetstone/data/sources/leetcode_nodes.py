"""LeetCode's linked lists and trees: the classes for programs, and the helper functions for test code.

Test code derived from LeetCodeDataset calls ``list_node``, ``tree_node``, ``is_same_list`` and
``is_same_tree``. Sets derived from it omit their definitions.
"""

from __future__ import annotations

import msgspec

from whetstone.core.problem import AssertTests

# Definitions that LeetCode inserts before a program.
NODE_CLASSES = """\
import collections, heapq, itertools, math, random
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import ceil, comb, floor, gcd, inf, isqrt, log, log2, sqrt
from typing import *


class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next


class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val = val
        self.left = left
        self.right = right
"""
_HELPERS = """

def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head


def is_same_list(first, second):
    while first and second and first.val == second.val:
        first, second = first.next, second.next
    return first is None and second is None


def tree_node(values):
    if not values:
        return None
    root = TreeNode(values[0])
    parents, rest = [root], list(values[1:])
    while parents and rest:
        parent = parents.pop(0)
        for side in ("left", "right"):
            value = rest.pop(0) if rest else None
            if value is not None:
                setattr(parent, side, TreeNode(value))
                parents.append(getattr(parent, side))
    return root


def is_same_tree(first, second):
    if first is None or second is None:
        return first is None and second is None
    same = first.val == second.val
    return same and is_same_tree(first.left, second.left) and is_same_tree(first.right, second.right)


"""
_USES = ("ListNode", "TreeNode", "list_node(", "tree_node(")


def needs_nodes(tests: AssertTests) -> bool:
    """Return whether test code builds linked lists or trees that it does not define."""
    code = "\n".join([tests.setup, tests.check or "", tests.unittest or "", *(tests.asserts or ())])
    defines = "class ListNode" in code or "class TreeNode" in code
    return not defines and any(word in code for word in _USES)


def with_nodes(tests: AssertTests) -> AssertTests:
    """Return the same tests with the definitions that they use."""
    return msgspec.structs.replace(tests, setup=NODE_CLASSES + _HELPERS + tests.setup)
