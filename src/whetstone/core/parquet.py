"""pyarrow, for everything that reads or writes Parquet. Imported on use: the judge needs none of it."""

from __future__ import annotations

from whetstone.core.errors import UserError

__all__ = ["pa", "pq"]

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError:
    raise UserError(
        "Parquet files need pyarrow; install the extra parquet: pip install 'whetstone-rl[parquet]'"
    ) from None
