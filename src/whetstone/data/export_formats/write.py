"""Write a set in an export format: one Parquet file, or one for each split of a dataset folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.outputs import replacing
from whetstone.core.problem import Problem
from whetstone.core.settings import checked
from whetstone.data.dataset import SPLITS, is_dataset, open_problems
from whetstone.data.export_formats.formats import (
    TRL,
    VERL,
    VERL_WHOLE,
    ColumnType,
    ExportFormat,
    NotRepresentable,
    Row,
)

EXPORT_FORMATS = {export_format.name: export_format for export_format in (VERL, VERL_WHOLE, TRL)}

_ROWS = 256


class _ExportSummary(Struct, frozen=True):
    """The rows of each file, and the problems that were left out, by reason."""

    files: dict[str, int]
    left_out: dict[str, int]


def export_format_named(name: str) -> ExportFormat:
    """Return an export format. Raises UserError for an unknown name."""
    if name not in EXPORT_FORMATS:
        known = ", ".join(EXPORT_FORMATS)
        raise UserError(f"no export format `{name}`{did_you_mean(name, EXPORT_FORMATS)} (known: {known})")
    return EXPORT_FORMATS[name]


ExportFormatName = Annotated[str, checked(export_format_named)]


def write_export(
    source: str, target: Path, export_format: ExportFormat, *, skip: bool = False
) -> _ExportSummary:
    """Write the set ``source`` to ``target``: a .parquet file, or a folder with a file for each split.

    If the format cannot represent a problem, nothing is written, and an error counts all such problems by
    reason. With ``skip`` they are left out and counted. Raises UserError.
    """
    left_out: Counter[str] = Counter()
    counts: dict[str, int] = {}
    files = export_files(source, target)
    # This reads the set twice, so that nothing is written before an error.
    if not skip:
        _require_all(source, export_format)
    for split, file in files.items():
        part = f"{source}:{split}" if is_dataset(source) else source
        with replacing(file) as temporary:
            counts[str(file)] = _write(
                temporary, export_format, _rows(open_problems(part), export_format, split, left_out)
            )
    return _ExportSummary(counts, dict(left_out))


def export_files(source: str, target: Path) -> dict[str, Path]:
    """Return the file of each split. Raises UserError for several splits and one file."""
    splits = SPLITS if is_dataset(source) else ("train",)
    if target.suffix != ".parquet":
        return {split: target / f"{split}.parquet" for split in splits}
    if len(splits) > 1:
        raise UserError(f"{target}: {source} has splits; name a folder, or one split: {source}:train")
    return {"train": target}


def _require_all(source: str, export_format: ExportFormat) -> None:
    refused: Counter[str] = Counter()
    for _ in _rows(open_problems(source), export_format, "train", refused):
        pass
    if refused:
        reasons = ", ".join(f"{count} {reason}" for reason, count in refused.most_common())
        raise UserError(
            f"{source}: the export format {export_format.name} cannot carry {sum(refused.values())} problems "
            f"({reasons}); it carries {export_format.carries}. Leave them out with --skip, "
            f"or {export_format.way_out}"
        )


def _rows(
    problems: Iterable[Problem], export_format: ExportFormat, split: str, refused: Counter[str]
) -> Iterator[Row]:
    index = 0
    for problem in problems:
        try:
            yield export_format.row(problem, split, index)
            index += 1
        except NotRepresentable as reason:
            refused[str(reason)] += 1


def _write(file: Path, export_format: ExportFormat, rows: Iterator[Row]) -> int:
    from whetstone.core.parquet import pa, pq

    schema = pa.schema({name: _arrow_type(kind) for name, kind in export_format.schema.items()})
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        batch: list[Row] = []
        for row in rows:
            batch.append(row)
            count += 1
            if len(batch) == _ROWS:
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema=schema))
    return count


def _arrow_type(kind: ColumnType) -> Any:
    from whetstone.core.parquet import pa

    if isinstance(kind, str):
        return pa.type_for_alias(kind)
    if isinstance(kind, list):
        return pa.list_(_arrow_type(kind[0]))
    return pa.struct({name: _arrow_type(field) for name, field in kind.items()})
