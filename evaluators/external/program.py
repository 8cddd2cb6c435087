"""A simulator that is a program: one start for each design, within bounds of time, memory and output.

Files go in and come out of a temporary folder. The program has a process group of its own, which ends with it. Whatever goes
wrong is one line.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from dse.evaluators.accounting.external_evaluators import ExternalEvaluator
from dse.evaluators.external.question_document import describe_question, read_metrics
from dse.evaluators.external.retries import TransientError, retry_question
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.workload import WorkloadCase

T = TypeVar("T")

POLL_S = 0.05
"""Time between two looks at a running program. [s]"""
QUESTION_FILE, ANSWER_FILE = "question.json", "answer.json"
MESSAGE_CHARS = 300
"""Characters of a program's last line in a message."""
LOG_BYTES = 4096
"""End of a program's output in which its last line is looked for. [B]"""


@dataclass(frozen=True, slots=True)
class ExternalProgram:
    """A command that reads files and writes files in the folder where it is started.

    Attributes:
        command: program and arguments; {folder} stands for the temporary folder.
        time_limit: of one start; then the program and all that it started are ended. [s]
        memory_limit: resident memory of the program and all that it started; None for no bound. [B]
        output_limit: size of each file that it writes. [B]
        tries: starts at most. Another follows if the program fails or writes what cannot be read, not after a time limit.
        pause: before the second start; twice as long before each further one. [s]
        environment: variables beside those of this process.
    """

    command: tuple[str, ...]
    time_limit: float = 600.0
    memory_limit: float | None = 4e9
    output_limit: float = 64e6
    tries: int = 1
    pause: float = 0.5
    environment: Mapping[str, str] = field(default_factory=dict)

    def ask(self, files: Mapping[str, str | bytes], outputs: Sequence[str], read: Callable[[dict[str, str]], T]) -> T:
        """What the program answers to some files.

        Args:
            files: content by name, written into the folder before the start.
            outputs: names of the files that are read when it has ended.
            read: value of the texts of these files by name. What it raises counts as a failure of the program.

        Raises:
            DesignError: the program cannot be started, fails, exceeds a bound, or writes what cannot be read.
        """
        return retry_question(self._name, self.tries, self.pause, lambda: self._ask_once(files, outputs, read))

    @property
    def _name(self) -> str:
        return Path(self.command[0]).name[:40] if self.command else "program"

    def _ask_once(self, files: Mapping[str, str | bytes], outputs: Sequence[str], read: Callable[[dict[str, str]], T]) -> T:
        if not self.command:
            raise DesignError("external program: the command is empty; name a program")
        with tempfile.TemporaryDirectory(prefix="dse-external-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            work, logs = folder / "work", folder / "logs"
            work.mkdir()
            logs.mkdir()
            for place, content in files.items():
                path = work / _relative(place)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.encode() if isinstance(content, str) else content)
            self._run(work, logs)
            texts = {place: self._read_output(work, logs, place) for place in outputs}
        try:
            return read(texts)
        except (DesignError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            what = str(error).splitlines()[0][:MESSAGE_CHARS] if str(error) else type(error).__name__
            raise TransientError(f"{', '.join(outputs)} cannot be read: {what}") from None

    def _run(self, work: Path, logs: Path) -> None:
        """Run the command to its end, within its bounds.

        Raises:
            DesignError: no such program, or a bound that it exceeds.
            TransientError: it ends with another status than 0.
        """
        words = [word.replace("{folder}", str(work)) for word in self.command]
        if shutil.which(words[0], path=os.environ.get("PATH")) is None and not Path(words[0]).is_file():
            raise DesignError(f"no program {words[0][:80]}; install it, or give its path")
        with (logs / "stdout").open("wb") as stdout, (logs / "stderr").open("wb") as stderr:
            try:
                process = subprocess.Popen(
                    self._bounded(words), cwd=work, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                    env={**os.environ, **self.environment}, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise DesignError(f"cannot be started: {error.strerror}") from None
            try:
                self._watch(process)
            finally:
                _end_group(process)
        if process.returncode:
            raise TransientError(f"{_describe_status(process.returncode)}{_last_line(logs)}")

    def _bounded(self, words: Sequence[str]) -> list[str]:
        """The command under a bound of the size of files, which a shell sets before the program begins."""
        shell = shutil.which("sh")
        if shell is None:
            return list(words)
        blocks = max(1, int(self.output_limit // 512))
        return [shell, "-c", 'ulimit -f "$1"; shift; exec "$@"', "sh", str(blocks), *words]

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait for the end of a program.

        Raises:
            DesignError: it takes longer, or more memory, than it may.
        """
        until = time.monotonic() + self.time_limit
        while process.poll() is None:
            if time.monotonic() >= until:
                raise DesignError(f"no answer within {self.time_limit:g} s: ended; raise time_limit, or ask less")
            if self.memory_limit is not None and (used := group_memory(process.pid)) > self.memory_limit:
                raise DesignError(
                    f"{used / 1e9:.2g} GB of memory, above its limit of {self.memory_limit / 1e9:.2g} GB: ended; "
                    "raise memory_limit, or ask less"
                )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)

    def _read_output(self, work: Path, logs: Path, place: str) -> str:
        path = work / _relative(place)
        if not path.is_file() or path.is_symlink():
            raise TransientError(f"it ended well, but wrote no {place}{_last_line(logs)}")
        if path.stat().st_size > self.output_limit:
            raise DesignError(f"{place} has more than {self.output_limit / 1e6:g} MB; raise output_limit, or write less")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise TransientError(f"{place} is no text in UTF-8") from None


def program_evaluator(
    about: str,
    program: ExternalProgram,
    answers: Callable[[Design, WorkloadCase], bool],
    *,
    write: Callable[[dict[str, Any]], Mapping[str, str | bytes]] | None = None,
    read: Callable[[dict[str, str]], Mapping[str, float]] | None = None,
    outputs: Sequence[str] = (ANSWER_FILE,),
) -> ExternalEvaluator:
    """Evaluator that asks a program, for an entry point of the group dse.evaluator.

    Args:
        about: what the program is, in a few words.
        program: command and bounds.
        answers: whether it supports a design, whatever the values of its leaves, and a type of case.
        write: files for the document of `describe_question`; None writes it as question.json.
        read: metrics in SI by name, from the texts of the outputs by name; None reads answer.json.
        outputs: files that the program writes.
    """

    def metrics(design: Design, case: WorkloadCase, closed: Mapping[str, float]) -> Mapping[str, float]:
        document = describe_question(design, case, closed)
        files = write(document) if write is not None else {QUESTION_FILE: json.dumps(document)}
        return program.ask(files, outputs, read or (lambda texts: read_metrics(json.loads(texts[outputs[0]]))))

    return ExternalEvaluator(about, answers, metrics)


def group_memory(group: int) -> int:
    """Resident memory of all processes of a process group; 0 where the kernel does not tell. [B]"""
    total, page = 0, os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                status = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()
                total += int(status[21]) * page if int(status[2]) == group else 0
    return total


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a program and all that it has started in its group."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _relative(place: str) -> str:
    """A name of a file below a folder.

    Raises:
        DesignError: a name that leads out of the folder.
    """
    path = PurePosixPath(place)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise DesignError(f"file {place[:60]!r}: expected a name below the temporary folder")
    return str(path)


def _describe_status(status: int) -> str:
    if status > 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


def _last_line(logs: Path) -> str:
    """Last line that a program wrote on stderr, else on stdout, after a colon; empty string if it wrote none."""
    for name in ("stderr", "stdout"):
        path = logs / name
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        if lines:
            text = "".join(character if character.isprintable() else " " for character in lines[-1])
            return f": {text[:MESSAGE_CHARS]}"
    return ""
