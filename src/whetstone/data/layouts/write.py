"""Write a set in another trainer's layout: one Parquet file, or one for each split of a dataset folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from whetstone.data.dataset import SPLITS, is_dataset, open_problems
from whetstone.data.layouts.layout import CannotCarry, Layout, Row
from whetstone.data.layouts.open_r1 import OPEN_R1
from whetstone.data.layouts.prime import PRIME
from whetstone.data.layouts.trl import TRL
from whetstone.data.layouts.verl import VERL, VERL_WHOLE
from whetstone.errors import UserError, did_you_mean
from whetstone.outputs import replacing
from whetstone.problem import Problem

LAYOUTS = {layout.name: layout for layout in (VERL, VERL_WHOLE, PRIME, TRL, OPEN_R1)}

_ROWS = 256


class Written(Struct, frozen=True):
    """The rows of each file, and the problems that were left out, by reason."""

    files: dict[str, int]
    left_out: dict[str, int]


def layout_named(name: str) -> Layout:
    """Raises UserError for an unknown name."""
    if name not in LAYOUTS:
        raise UserError(f"no layout `{name}`{did_you_mean(name, LAYOUTS)} (known: {', '.join(LAYOUTS)})")
    return LAYOUTS[name]


def write_layout(source: str, target: Path, layout: Layout, *, skip: bool = False) -> Written:
    """Write the set ``source`` to ``target``: a .parquet file, or a folder with a file for each split.

    A problem that the layout cannot carry is an error that counts them all by reason, and nothing is
    written; with ``skip`` they are left out and counted. Raises UserError.
    """
    left_out: Counter[str] = Counter()
    counts: dict[str, int] = {}
    files = layout_files(source, target)
    if not skip:
        _require_all(source, layout)
    for split, file in files.items():
        part = f"{source}:{split}" if is_dataset(source) else source
        with replacing(file) as temporary:
            counts[str(file)] = _write(temporary, layout, _rows(open_problems(part), layout, split, left_out))
    return Written(counts, dict(left_out))


def layout_files(source: str, target: Path) -> dict[str, Path]:
    """The file that ``write_layout`` writes for each split. Raises UserError for splits into one file."""
    splits = SPLITS if is_dataset(source) else ("train",)
    if target.suffix != ".parquet":
        return {split: target / f"{split}.parquet" for split in splits}
    if len(splits) > 1:
        raise UserError(f"{target}: {source} has splits; name a folder, or one split: {source}:train")
    return {"train": target}


def _require_all(source: str, layout: Layout) -> None:
    refused: Counter[str] = Counter()
    for _ in _rows(open_problems(source), layout, "train", refused):
        pass
    if refused:
        reasons = ", ".join(f"{count} {reason}" for reason, count in refused.most_common())
        raise UserError(
            f"{source}: the layout {layout.name} cannot carry {sum(refused.values())} problems ({reasons}); "
            f"it carries {layout.carries}. Leave them out with --skip, or {layout.way_out}"
        )


def _rows(problems: Iterable[Problem], layout: Layout, split: str, refused: Counter[str]) -> Iterator[Row]:
    index = 0
    for problem in problems:
        try:
            yield layout.row(problem, split, index)
            index += 1
        except CannotCarry as reason:
            refused[str(reason)] += 1


def _write(file: Path, layout: Layout, rows: Iterator[Row]) -> int:
    count = 0
    with pq.ParquetWriter(file, layout.schema, compression="zstd") as writer:
        batch: list[Row] = []
        for row in rows:
            batch.append(row)
            count += 1
            if len(batch) == _ROWS:
                writer.write_table(pa.Table.from_pylist(batch, schema=layout.schema))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema=layout.schema))
    return count
