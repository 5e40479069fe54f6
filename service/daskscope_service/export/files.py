"""Writes exported rows to files: as JSON lines, or as Parquet for pandas, DuckDB and the like."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol

from sqlalchemy import Boolean, Float, Integer

from daskscope.protocol import is_time
from daskscope_service.export.rows import Rows
from daskscope_service.web.representation import iso

#: About how many bytes one row group of a Parquet file has.
_GROUP_BYTES = 16 * 1024 * 1024


class Sink(Protocol):
    """A file that gets the rows of one table."""

    def write(self, rows: Rows) -> None:
        """Write some rows."""

    def close(self) -> None:
        """Write the remaining rows, and close the file."""


class JsonLines:
    """A file with one JSON object per line; as in the HTTP API, times are ISO 8601 in UTC."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, rows: Rows) -> None:
        """Write some rows."""
        for row in rows:
            row = {
                # Only columns: a field inside a JSON value may have such a name but be no time.
                name: iso(value) if value is not None and is_time(name) else value
                for name, value in row.items()
            }
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Write the remaining rows, and close the file."""
        self._file.flush()
        self._file.close()


class Parquet:
    """A Parquet file. Times are timestamps in UTC; JSON values are text.

    Raises ImportError if pyarrow is not installed.
    """

    def __init__(self, path: Path, columns: Mapping[str, Any]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self._pa: Any = pa
        self._schema = pa.schema([(name, _type(pa, name, kind)) for name, kind in columns.items()])
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._waiting: list[Any] = []

    def write(self, rows: Rows) -> None:
        """Take some rows; write them when they fill a row group."""
        if rows:
            self._waiting.append(
                self._pa.RecordBatch.from_pydict(
                    {
                        column.name: [self._value(column, row[column.name]) for row in rows]
                        for column in self._schema
                    },
                    schema=self._schema,
                )
            )
            if sum(batch.nbytes for batch in self._waiting) > _GROUP_BYTES:
                self._flush()

    def close(self) -> None:
        """Write the waiting rows and the end of the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(self._pa.Table.from_batches(self._waiting))
            self._waiting.clear()

    def _value(self, column: Any, value: Any) -> Any:
        if value is None:
            return None
        if self._pa.types.is_timestamp(column.type):
            return round(value * 1_000_000)
        if self._pa.types.is_string(column.type):
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return value


def private(path: Path) -> Path:
    """Create the file ``path``, readable by its owner only, in place of one that is there."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return path


def _type(pa: Any, name: str, kind: Any) -> Any:
    if isinstance(kind, Float):
        return pa.timestamp("us", tz="UTC") if is_time(name) else pa.float64()
    if isinstance(kind, Boolean):
        return pa.bool_()
    return pa.int64() if isinstance(kind, Integer) else pa.string()
