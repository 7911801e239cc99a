"""A map of columns: which columns of any table are the statement, the tests and the other parts of a problem.

A column is a name, or a path of names with dots: ``info.tests`` is the field ``tests`` of the objects in the
column ``info``, and ``cases.in`` are the fields ``in`` of the objects in the lists of ``cases``. Objects and
lists may be packed into text as JSON or Python data.

A map file is YAML. It has a map, and where the rows are. It is a source by its path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, model_validator

from whetstone.core.outputs import write_file
from whetstone.core.settings import NonEmpty, Section, read_mapping, read_settings

ENDINGS = (".yaml", ".yml")


class ColumnMap(Section):
    """The columns of a table, by the part of a problem that they hold.

    statement: text, or chat messages, of which the last one of the user counts.
    tests: inputs and outputs in any common form, asserts, or test code.
    inputs: instead of ``tests``: a list with an item for each test, or the text of the only test.
    outputs: the expected outputs or results, in the form of ``inputs``.
    function: the name of the called function; a starter with one function states it, too.
    starter: the code to begin with.
    reference: a correct program, or a list of them.
    id: a name of the problem; without it, a hash of the row.
    language: the language of the programs; without it, Python.
    time_limit: seconds, or text with a unit; the name of a column such as ``limit_ms`` gives its unit.
    memory_limit: megabytes, or text with a unit; the name of a column such as ``limit_kb`` gives its unit.
    difficulty: any value, stored in ``meta``.
    tags: a list of names, or text with commas.
    kind: the kind of the tests; without it, their form and the function's name decide.
    """

    statement: NonEmpty
    tests: NonEmpty | None = None
    inputs: NonEmpty | None = None
    outputs: NonEmpty | None = None
    function: NonEmpty | None = None
    starter: NonEmpty | None = None
    reference: NonEmpty | None = None
    id: NonEmpty | None = None
    language: NonEmpty | None = None
    time_limit: NonEmpty | None = None
    memory_limit: NonEmpty | None = None
    difficulty: NonEmpty | None = None
    tags: NonEmpty | None = None
    kind: Literal["stdin", "call", "assert", "pytest"] | None = None

    @model_validator(mode="after")
    def _has_tests(self) -> ColumnMap:
        if (self.tests is None) == (self.inputs is None or self.outputs is None):
            raise ValueError("give the tests as tests=COLUMN, or as inputs=COLUMN and outputs=COLUMN")
        return self

    def columns(self) -> dict[str, str]:
        """Return the parts of a problem -> their columns."""
        return self.model_dump(exclude_none=True, exclude={"kind"})


class MapFile(Section):
    """A map file.

    name: the source's name, with which the ids of its problems begin.
    title: one line for the data card.
    licence: an SPDX identifier, or a description.
    path: the file or folder with the rows, relative to the working directory.
    hub_id: the dataset on the hub, instead of ``path``.
    revision: its commit or tag; without it, the newest.
    files: on the hub: split -> glob of its files.
    map: the columns of the rows, by the part of a problem that they hold.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    title: str = ""
    licence: NonEmpty = "not stated"
    path: NonEmpty | None = None
    hub_id: NonEmpty | None = None
    revision: NonEmpty | None = None
    files: dict[str, NonEmpty] = Field(default_factory=dict)
    map: ColumnMap


def read_map_file(path: str | Path) -> MapFile:
    """Read a map file. Raises UserError with the file and the key."""
    data = read_mapping(path, what="a map of columns", example="whetstone data import --help")
    return read_settings(MapFile, data, where=str(path))


def write_map_file(path: str | Path, content: MapFile) -> None:
    """Write a map file. Raises UserError for a file that cannot be written."""
    fields = content.model_dump(exclude_none=True, exclude_defaults=True)
    write_file(path, [yaml.safe_dump(fields, sort_keys=False, allow_unicode=True).encode()])
