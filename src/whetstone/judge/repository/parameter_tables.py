"""The ``pytest.mark.parametrize`` decorators of a test whose rows are written out."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from whetstone.core.syntax import parsing
from whetstone.judge.repository.constants import FunctionNode


@dataclass
class ParameterTable:
    """A decorator with its columns and rows, and the variable of the module from which they were copied."""

    call: ast.Call
    names: list[str]
    rows: list[ast.expr]
    copied: str = ""

    def cells(self, column: int) -> list[ast.expr] | None:
        """Return the cells of a column; None if a row does not show them."""
        rows = [self._cells_of(row) for row in self.rows]
        return None if any(len(row) != len(self.names) for row in rows) else [row[column] for row in rows]

    def hide(self, hidden: frozenset[str]) -> None:
        """Replace the cells of hidden columns by None."""
        for column, name in enumerate(self.names):
            for number, row in enumerate(self.rows if name in hidden else ()):
                cells = self._cells_of(row)
                if cells == [row]:
                    self.rows[number] = ast.Constant(None)
                else:
                    cells[column] = ast.Constant(None)

    def _cells_of(self, row: ast.expr) -> list[ast.expr]:
        """Return the list with the cells of a row. A row of the only column may be the cell itself."""
        match row:
            case ast.Call(function, values) if ast.unparse(function).rpartition(".")[2] == "param":
                return values
            case _ if len(self.names) == 1:
                return [row]
            case ast.Tuple(values) | ast.List(values):
                return values
            case _:
                return []

    def number_rows(self) -> None:
        """Name the rows by their numbers, because pytest would name them by their values."""
        for row in self.rows:
            if isinstance(row, ast.Call):
                row.keywords = [keyword for keyword in row.keywords if keyword.arg != "id"]
        self.call.keywords = [keyword for keyword in self.call.keywords if keyword.arg != "ids"]
        numbers: list[ast.expr] = [ast.Constant(str(number)) for number in range(len(self.rows))]
        self.call.keywords.append(ast.keyword("ids", ast.List(numbers, ast.Load())))


def tables_of(function: FunctionNode, module_lists: Mapping[str, ast.expr]) -> list[ParameterTable]:
    """Return the tables of a test. Rows that are a list of the module are copied into the decorator."""
    tables: list[ParameterTable] = []
    for call in function.decorator_list:
        if not (isinstance(call, ast.Call) and ast.unparse(call.func).endswith("mark.parametrize")):
            continue
        for name in ("argnames", "argvalues"):
            call.args += [keyword.value for keyword in call.keywords if keyword.arg == name]
            call.keywords = [keyword for keyword in call.keywords if keyword.arg != name]
        if len(call.args) != 2:
            continue
        rows = call.args[1]
        copied = ""
        if isinstance(rows, ast.Name) and rows.id in module_lists:
            copied = rows.id
            text = ast.unparse(module_lists[rows.id])
            with parsing():
                rows = ast.parse(text, mode="eval").body
        names = _column_names(call.args[0])
        if names and isinstance(rows, ast.List | ast.Tuple):
            if any(isinstance(row, ast.Starred) for row in rows.elts):
                continue
            table = ParameterTable(call, names, rows.elts, copied)
            call.args[1] = ast.List(table.rows, ast.Load())
            tables.append(table)
    return tables


def _column_names(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(str() as text):
            return [name.strip() for name in text.split(",") if name.strip()]
        case ast.List(items) | ast.Tuple(items):
            texts = [item.value for item in items if isinstance(item, ast.Constant)]
            names = [text for text in texts if isinstance(text, str)]
            return names if len(names) == len(items) else []
        case _:
            return []
