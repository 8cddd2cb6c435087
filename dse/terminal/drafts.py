"""Files that are there whole or not at all."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def draft(path: Path) -> Iterator[Path]:
    """A place beside a file to write it first; the file is replaced at the end, and where writing fails nothing is left.

    Raises:
        OSError: from writing, with the file's path where the system named none.
    """
    place = path.with_name(f".{path.name}.draft")
    try:
        place.unlink(missing_ok=True)
        yield place
        place.replace(path)
    except OSError as error:
        if error.errno is not None and not error.filename:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):
            place.unlink(missing_ok=True)
