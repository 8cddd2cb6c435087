"""Folders of any filesystem that pyarrow reads: local, on a network, or of an object store."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as filesystems
import pyarrow.parquet as pq

from dse.space.errors import DesignError
from dse.space.safe_text import mask_passwords
from dse.store.renamed_columns import current_column, rename_columns
from dse.terminal.atomic_files import write_atomically

SCHEMES = ("s3", "gs", "abfs", "hdfs", "viewfs", "file")
"""Of URLs that pyarrow has a filesystem for."""


@dataclass(frozen=True)
class StorageFolder:
    """One folder; it may be pickled, and means the same on every machine that reaches it.

    Attributes:
        text: a path of this machine, or a URL, as s3://BUCKET/FOLDER.
    """

    text: str

    def __str__(self) -> str:
        return mask_passwords(self.text)

    def reach(self) -> None:
        """Refuse an unknown filesystem; whether it answers shows at the first read or write.

        Raises:
            DesignError: what is wrong, and what would be right.
        """
        _ = self._reach_folder

    def open_subfolder(self, name: str) -> "StorageFolder":
        """A subfolder of this storage folder."""
        path, mark, query = self.text.partition("?")
        return StorageFolder(f"{path.rstrip('/')}/{name}{mark}{query}")

    def local_path(self) -> Path | None:
        """Local path of the folder; None if it is not on this machine."""
        scheme, mark, _ = self.text.partition("://")
        return Path(self._reach_folder[1]) if scheme == "file" and mark else None if mark else Path(self.text)

    def list_files(self) -> list["StoredFile"]:
        """Parquet files of the folder, by name; none if there is no such folder."""
        with self._report_faults():
            system, folder = self._reach_folder
            infos = system.get_file_info(filesystems.FileSelector(folder, allow_not_found=True))
            names = (info.base_name for info in infos if info.type == filesystems.FileType.File)
            return [StoredFile(self, name) for name in sorted(names) if name.endswith(".parquet")]

    def put(self, name: str, content: bytes) -> "StoredFile":
        """Store a file atomically: it is complete, absent, or does not match the checksum in its name."""
        path = self.local_path()
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
            with write_atomically(path / name) as place:
                place.write_bytes(content)
            return StoredFile(self, name)
        with self._report_faults():
            system, folder = self._reach_folder
            system.create_dir(folder, recursive=True)
            with system.open_output_stream(f"{folder}/{name}") as stream:
                stream.write(content)
        return StoredFile(self, name)

    @cached_property
    def _reach_folder(self) -> tuple[Any, str]:
        """The filesystem, and the folder's path on it."""
        if "://" not in self.text:
            return filesystems.LocalFileSystem(), str(Path(self.text).absolute())
        with self._report_faults():
            system, folder = filesystems.FileSystem.from_uri(self.text)
        if not folder.strip("/"):
            raise DesignError(f"screen.folder: {self} names no folder; write SCHEME://BUCKET/FOLDER")
        return system, folder.rstrip("/")

    def __getstate__(self) -> dict[str, str]:
        return {"text": self.text}

    @contextlib.contextmanager
    def _report_faults(self) -> Iterator[None]:
        """Turn what a filesystem reports into one line for the user."""
        if "://" not in self.text:
            yield
            return
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise DesignError(
                f"screen.folder: {self}: {mask_passwords(reason)}; write a path, or a URL of {', '.join(SCHEMES)}, "
                f"that every worker "
                "reaches"
            ) from None


def read_parquet(source: Any, columns: list[str] | None = None, stride: int = 1) -> pa.Table:
    """Read a table from an open Parquet file, one column at a time to hold little beside it.

    Args:
        source: the file.
        columns: by their names of now; None for all.
        stride: of the rows that are taken, from the first on.
    """
    file = pq.ParquetFile(source)
    names = [name for name in file.schema_arrow.names if columns is None or current_column(name) in columns]
    taken = pa.array(np.arange(0, file.metadata.num_rows, stride)) if stride > 1 else None
    parts = list[Any]()
    for name in names:
        column = file.read(columns=[name], use_threads=False).column(0)
        parts.append(column if taken is None else column.take(taken))
    table = rename_columns(pa.table(parts, names=names, metadata=file.schema_arrow.metadata))
    pa.default_memory_pool().release_unused()
    return table


@dataclass(frozen=True)
class StoredFile:
    """One Parquet file in a storage folder."""

    place: StorageFolder
    name: str

    def __str__(self) -> str:
        return f"{str(self.place).partition('?')[0].rstrip('/')}/{self.name}"

    def local_path(self) -> Path | None:
        """Local path of the file; None if it is not on this machine."""
        folder = self.place.local_path()
        return None if folder is None else folder / self.name

    def read_content(self) -> bytes:
        """Contents of the file as bytes."""
        with self.place._report_faults():
            system, folder = self.place._reach_folder
            with system.open_input_stream(f"{folder}/{self.name}") as stream:
                return bytes(stream.read())

    def read_table(self, columns: list[str] | None = None, stride: int = 1) -> pa.Table:
        """Table of the file; of given columns those that exist, and of its rows each `stride`-th."""
        with self.place._report_faults():
            system, folder = self.place._reach_folder
            with system.open_input_file(f"{folder}/{self.name}") as opened:
                return read_parquet(opened, columns, stride)

    def drop(self) -> None:
        """Remove the file, if it is there."""
        with self.place._report_faults():
            system, folder = self.place._reach_folder
            with contextlib.suppress(FileNotFoundError):
                system.delete_file(f"{folder}/{self.name}")
