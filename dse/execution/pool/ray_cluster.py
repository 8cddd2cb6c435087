"""Connection to a Ray cluster, started here or found at an address: access, errors, loss.

A cluster that is started here listens to this machine only and asks for a token that no other user has. It has no dashboard.
"""

import atexit
import contextlib
import logging
import os
import secrets
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dse.execution.pool.worker_kind import last_line, refuse_start
from dse.execution.pool.worker_settings import WorkerSettings, cpu_count
from dse.space.errors import DesignError
from dse.terminal import orphan_processes as left
from dse.terminal.child_python import script_path
from dse.terminal.exit_watcher import ExitWatcher
from dse.terminal.signals import defer_signals

OBJECT_STORE = 80 * 2**20
"""Ray's least, as results travel beside it. [B]"""

START_TIMEOUT_S = 20.0
"""How long a cluster may not answer before it is lost. [s]"""

RAYLET_END = 0.3
"""How long Ray on this machine takes to end after its workers, where it ends with them. [s]"""

ENDED = (
    "dse: the process was ended from outside, by a kill or with Ray's processes on this machine; what is finished is stored; "
    "run the same command again, and it goes on from there"
)
"""The last line of a driver that could not print one."""

NO_RAY = "Ray does not start on this machine"

TOKEN_HINT = (
    "write it to ~/.ray/auth_token or give it as RAY_AUTH_TOKEN=..., set RAY_AUTH_MODE=token, and run the same command again"
)

WORKERS = "RAY_JOB_ID"
"""What Ray gives its workers, and they what they start, as a variable."""


class RayCluster:
    """One Ray cluster that was started or connected to.

    Attributes:
        owned: whether it was started or connected to here, and not by the caller.
        lost: whether it did not answer when it was last looked for.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._after = _connect_cluster(settings)
        self._watcher = None if self._after is None else ExitWatcher(ENDED)
        self.owned = self._after is not None
        import ray

        self.ray: Any = ray
        self._address = str(ray.get_runtime_context().gcs_address)
        self._raylet = _raylet_process(ray) if self.owned and not settings.address else None
        self.lost = False
        self._seen = self._looked = time.monotonic()

    def check(self) -> None:
        """Refuse to go on if Ray on this machine has ended or the cluster no longer answers.

        Raises:
            DesignError: it has ended, or has not answered for a while.
        """
        if self._raylet is not None and self._raylet.poll() is not None:
            self.lost = True
            raise DesignError(
                "workers: Ray on this machine has ended, a user or the kernel killed its raylet; what is finished is stored; "
                "run the same command again, and it goes on from there"
            )
        now = time.monotonic()
        if now - self._looked < START_TIMEOUT_S / 10:
            return
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=START_TIMEOUT_S / 10).close()
            self.lost, self._seen = False, now
        except OSError:
            self.lost = True
        self._looked = time.monotonic()
        if self._looked - self._seen > START_TIMEOUT_S:
            raise DesignError(
                f"workers: the Ray cluster at {self._address} is lost: no answer for {START_TIMEOUT_S:.0f} s; "
                "what is finished is stored; start the cluster again, then run the same command again"
            )

    def check_after_death(self) -> None:
        """Check the cluster after a worker died, with a short wait that shows whether Ray itself ended.

        A process that asks Ray for a new worker in that moment would be ended by Ray without a message.
        """
        if self._raylet is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._raylet.wait(RAYLET_END)
        self.check()

    def last_words(self) -> str:
        """Last line that a worker here wrote to standard error, after a colon; empty string if none."""
        node = getattr(self.ray._private.worker, "_global_node", None)
        if self._raylet is None or node is None:
            return ""
        logs = Path(node.get_logs_dir_path()).glob("worker-*.err")
        texts = (path.read_text(errors="replace") for path in sorted(logs, key=lambda path: path.stat().st_mtime, reverse=True))
        return next(filter(None, map(last_line, texts)), "")

    def sweep(self) -> None:
        """End processes that dead workers left here; workers that are told to end do so themselves."""
        left.end_children(0.0, WORKERS)

    def close(self) -> None:
        """Disconnect from Ray, or end it if it was started here."""
        if self._after is None:
            return
        if self._watcher is not None:
            self._watcher.close()
        if self.lost:  # Ray would wait for it, here and at the end; processes that were started here end with the driver
            atexit.unregister(self.ray._private.worker.shutdown)
            atexit.register(_leave_process)
        else:
            self.ray.shutdown()
            self._after()
        self.sweep()


def _raylet_process(ray: Any) -> subprocess.Popen[bytes] | None:
    """The process that starts workers here, where Ray was started here; None where Ray does not say."""
    node = getattr(ray._private.worker, "_global_node", None)
    processes = getattr(node, "all_processes", {}).get("raylet", [])
    return processes[0].process if processes else None


def _connect_cluster(settings: WorkerSettings) -> Callable[[], None] | None:
    """Start Ray here, or finds the cluster at the address; returns what to do after it, None where it is the caller's own."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray ends the process when its cluster is lost for that long; `Cluster.check` says so first
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "300")
    # of a cluster that ends, Ray itself would print lines of its own on standard error; what it is, is said here
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        import ray
    except Exception as error:  # it is not installed, or not for this Python
        raise refuse_start(NO_RAY, error) from None

    if ray.is_initialized():
        return None
    # Ray would print a paragraph on standard output for each worker that dies; why it did is stored with its design
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    if not settings.address:
        left.adopt_orphans()
        restore = _isolate_cluster()
        try:
            line = f"dse: {refuse_start(NO_RAY, 'it ended this process, for which there may be too little memory')}"
            with contextlib.closing(ExitWatcher(line)), defer_signals(), _silence_errors():
                ray.init(
                    address="local",
                    job_config=_job_config(),
                    num_cpus=settings.count or cpu_count(),
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                )
        except Exception as error:  # a limit on files or memory, a machine that is too busy: Ray raises what it will
            with contextlib.suppress(Exception):
                ray.shutdown()
            restore()
            raise refuse_start(NO_RAY, error) from None
        return restore
    host, _, port = settings.address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        with _silence_errors():
            ray.init(address=settings.address, job_config=_job_config(), log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:
        if "uthentication" in "".join(traceback.format_exception(error)):
            raise DesignError(f"ray.address: the cluster at {settings.address} needs a token; {TOKEN_HINT}") from None
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise DesignError(f"ray.address: no cluster at {settings.address}: {reason}") from None
    return lambda: None


def _job_config() -> Any:
    """Settings of a Ray job whose workers look for no module in the current folder, which Ray itself would add."""
    from ray.job_config import JobConfig

    class Settings(JobConfig):
        def _runtime_env_has_working_dir(self) -> bool:
            """Whether Ray adds neither the script's nor the current folder to the workers' `sys.path`."""
            return True

    return Settings(_py_driver_sys_path=script_path())


@contextlib.contextmanager
def _silence_errors() -> Iterator[None]:
    """Nothing reaches standard error, where Ray's own code repeats each second what it is refused for."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _isolate_cluster() -> Callable[[], None]:
    """Settings of a Ray that is of this driver alone, for as long as it runs; returns what takes them back."""
    from ray._private import ray_constants
    from ray._private.node import Node
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    node: Any = Node

    settings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # without a cluster, Ray's own address is that of this machine to itself, and nothing listens beyond it
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }
    before = {name: os.environ.get(name) for name in settings}
    usual = ray_constants.ENABLE_RAY_CLUSTER, node.start_api_server

    def reload_settings() -> None:
        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()

    def restore_settings() -> None:
        ray_constants.ENABLE_RAY_CLUSTER, node.start_api_server = usual
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        reload_settings()

    os.environ.update(settings)
    node.start_api_server = _no_dashboard  # Ray starts its process even without a dashboard
    ray_constants.ENABLE_RAY_CLUSTER = False  # Ray reads settings when it is imported
    reload_settings()
    return restore_settings


def _leave_process() -> None:
    """End the process as it stands: Ray that has lost its cluster crashes when the interpreter takes it apart."""
    sys.stdout.flush()
    sys.stderr.flush()
    left.end_all()
    os._exit(2)


def _no_dashboard(node: Any, **_: Any) -> None:
    node._webui_url = ""
