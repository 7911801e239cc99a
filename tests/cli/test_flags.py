"""Flags from settings classes: the class alone decides names, types, defaults and errors."""

from __future__ import annotations

import argparse
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from whetstone.cli.flags import add_command, bound_command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.settings import Count, NonEmpty, Section, Share, Temperature


class Reading(Section):
    """A section with every form of flag."""

    files: Annotated[tuple[NonEmpty, ...], Flag("files to read", "FILE", positional=True)]
    count: Annotated[Count, Flag("how many", "N")] = 3
    share: Annotated[Share | None, Flag("which part", "SHARE", name="part")] = None
    kinds: Annotated[tuple[str, ...], Flag("with commas")] = ()
    stop: Annotated[tuple[str, ...], Flag("repeated", repeat=True)] = ()
    order: Annotated[Literal["up", "down"], Flag("direction")] = "up"
    loud: Annotated[bool, Flag("say more")] = False
    temperature: Temperature | None = None
    internal: int = 7


class Speed(Struct, frozen=True):
    """A struct, for a command that starts without pydantic."""

    workers: Annotated[int, Meta(ge=0), Flag("of the judge", "N")] = 1
    count: Annotated[int, Flag("shared with the section")] = 0


def parsed(*argv: str) -> tuple[Reading, Speed]:
    taken: list[Any] = []

    def run(reading: Reading, speed: Speed) -> int:
        taken.extend((reading, speed))
        return 0

    run.__annotations__.update(reading=Reading, speed=Speed)
    parser = argparse.ArgumentParser()
    add_command(parser.add_subparsers(), "read", run, help="read")
    assert bound_command(parser.parse_args(["read", *argv]))() == 0
    return taken[0], taken[1]


def test_flags_fill_the_class_and_its_defaults_hold() -> None:
    assert parsed("a") == (Reading(files=("a",)), Speed())
    words = ["a", "b", "--count", "5", "--part", "0.5", "--kinds", "x,y", "--stop", "1,2", "--stop", "3"]
    reading, speed = parsed(*words, "--order", "down", "--loud", "--temperature", "0", "--workers", "2")
    expected = Reading(
        files=("a", "b"),
        count=5,
        share=0.5,
        kinds=("x", "y"),
        stop=("1,2", "3"),
        order="down",
        loud=True,
        temperature=0.0,
    )
    assert reading == expected
    assert speed == Speed(workers=2, count=5)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("a", "--count", "0"), "--count: Input should be greater than or equal to 1"),
        (("a", "--count", "many"), "--count: Input should be a valid integer"),
        (("a", "--part", "2"), "--part: Input should be less than or equal to 1"),
        (("a", "--workers", "-1"), "--workers is -1"),
    ],
)
def test_an_error_names_the_flag_and_the_bound(argv: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        parsed(*argv)


def test_a_field_without_a_flag_is_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("a", "--internal", "1")
    with pytest.raises(SystemExit):
        parsed("--help")
    shown = capsys.readouterr().out
    assert "how many (default: 3)" in shown
    assert "--loud, --no-loud" in shown
    assert "internal" not in shown
