"""pyarrow, for everything that reads or writes Parquet. Imported on use: the judge needs none of it."""

from __future__ import annotations

from whetstone.core.errors import UserError
from whetstone.core.optional_packages import install_command

__all__ = ["pa", "pq"]

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError:
    raise UserError(
        f"Parquet files need pyarrow; install the extra parquet: {install_command('parquet')}"
    ) from None
