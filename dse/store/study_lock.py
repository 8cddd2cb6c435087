"""Lock of a study: one driver at a time; the system releases it when the process ends."""

import hashlib
import os
import time
from pathlib import Path

import sqlalchemy as sql

from dse.space.errors import DesignError
from dse.store.database import WRITABLE


class FileLock:
    """A lock on a file beside the database.

    Args:
        path: of the database.
    """

    TRIES = 5
    """Who looks whether a study is held holds it for a moment himself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self, study: str) -> bool:
        """Lock a study for this process; False if another process has it.

        Raises:
            DesignError: there is no place for the lock.
        """
        import fcntl

        for _ in range(self.TRIES):
            try:
                self._file = os.open(self._lock_path(study), os.O_RDWR | os.O_CREAT, 0o666)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                self.release()
                time.sleep(0.02)
            except OSError as error:
                self.release()
                raise DesignError(f"store: {self._lock_path(study)}: {error.strerror}; {WRITABLE}") from None
        return False

    def is_taken(self, study: str) -> bool:
        """Whether some process has locked a study, as far as can be seen from here."""
        import fcntl

        try:
            file = os.open(self._lock_path(study), os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def release(self) -> None:
        """Release the lock, if this process has it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lock_path(self, study: str) -> str:
        return f"{self._path}.{study}.lock"


RELEASE_WAITS_S = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Times before each attempt to take a lock that a closed session may still have at the server. [s]"""


class ServerLock:
    """An advisory lock of a PostgreSQL session; all drivers of the database see it.

    Attributes:
        session: that has the lock, None where none has.
    """

    def __init__(self, engine: sql.Engine) -> None:
        self._engine = engine
        self.session: sql.Connection | None = None

    def take(self, study: str) -> bool:
        """Lock a study for this session; False if another session has it."""
        self.session = self._engine.connect()
        with self.session.begin():
            for name, seconds in (("idle", 30), ("interval", 10)):  # for a driver whose machine is gone
                self.session.execute(sql.text(f"SET tcp_keepalives_{name} = {seconds}"))
            for wait in RELEASE_WAITS_S:  # a server ends the lock of a session that was closed a little later
                time.sleep(wait)
                if self.session.execute(sql.text(f"SELECT pg_try_advisory_lock({lock_number(study)})")).scalar_one():
                    return True
        self.release()
        return False

    def is_taken(self, study: str) -> bool:
        """Whether some session has locked a study."""
        high, low = lock_number(study) >> 32 & 0xFFFFFFFF, lock_number(study) & 0xFFFFFFFF
        query = (
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database "
            "WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datname = current_database() "
            f"AND classid::bigint = {high} AND objid::bigint = {low}"
        )
        with self._engine.connect() as connection:
            return bool(connection.execute(sql.text(query)).scalar_one())

    def release(self) -> None:
        """Release the lock, also if the session is lost."""
        if self.session is not None:
            self.session.invalidate()  # closes it at the server too, which ends the lock
            self.session.close()
            self.session = None


def lock_number(study: str) -> int:
    """Number of a lock on PostgreSQL, which has only numbers."""
    return int.from_bytes(hashlib.blake2b(f"mesh-dse {study}".encode(), digest_size=8).digest(), signed=True)
