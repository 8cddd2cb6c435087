"""Atomic writes: files that are complete or absent."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Context with a temporary path that replaces the file at the end; on failure nothing is left.

    A link's file is replaced, not the link; a device or a pipe is written to directly, and never replaced.

    Raises:
        OSError: from writing, with the file's path where the system named none.
    """
    device = is_device(path)
    file = path.resolve() if path.is_symlink() and not device else path
    place = path if device else file.with_name(f".{file.name}.draft")
    try:
        if not device:
            place.unlink(missing_ok=True)
        yield place
        if not device:
            place.replace(file)
    except OSError as error:
        if error.errno is not None and not error.filename:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        if not device:
            with contextlib.suppress(OSError):
                place.unlink(missing_ok=True)


def is_device(path: Path) -> bool:
    """Whether the path is neither a file nor a folder, such as /dev/stdout if that is a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()
