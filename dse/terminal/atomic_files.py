"""Files that are there whole or not at all."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """A place beside a file to write it first; the file is replaced at the end, and where writing fails nothing is left.

    A link's file is replaced, not the link; a device or a pipe is written to as it is, and never replaced.

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
    """Whether something is there that is neither a file nor a folder, as /dev/stdout where that is a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()
