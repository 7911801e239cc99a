"""Invalid YAML is one kind of error, whatever the parser raises for it."""

from __future__ import annotations

from itertools import product

import pytest
import yaml

from whetstone.core.errors import UserError
from whetstone.core.settings import mapping_of
from whetstone.core.yaml_text import parse_yaml

TAGS = ("int", "float", "bool", "timestamp", "binary", "null", "set", "omap", "pairs", "seq", "map", "merge")
VALUES = ("x", "1-99-99", "", "[a]", "{a: b}", "0x", "1:2:3x", ".", "+", "[]", '"\\ud800"')
OTHERS = (
    "2024-02-30",
    "2024-13-01",
    "2024-02-03T99:99:99",
    "9" * 5000,
    "[" * 50_000,
    "- " * 50_000,
    "{a: " * 50_000,
    "1:" * 5000 + "1",
    "{[a]: b}",
    "<<: 5",
    "&a [*a",
    "\0",
)


@pytest.mark.parametrize("text", [*OTHERS, *(f"!!{tag} {value}" for tag, value in product(TAGS, VALUES))])
def test_every_text_is_read_or_refused_as_yaml(text: str) -> None:
    try:
        parse_yaml(text)
    except yaml.YAMLError:
        with pytest.raises(UserError, match=r"the value is not YAML(.|\n)*write text in quotes.*'key=\"…\"'"):
            mapping_of([f"key={text}"])


@pytest.mark.parametrize("text", ["2024-02-30", "2024-13-01", "9" * 5000, "[" * 50_000, "!!timestamp x"])
def test_what_the_parser_cannot_construct_is_refused_as_yaml(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="cannot be read"):
        parse_yaml(text)
