"""Property tests with examples that nobody has tried: ``python -m tests.explore --minutes 10``.

The suite draws the same examples each time; this draws new ones, of all property tests or of those in some files, in an order
of its own, until time is over. What fails is printed as a case to record (`@example`), and kept in `.hypothesis/explored`:
the next exploration tries it first, and ``python -m tests.explore --again`` tries nothing else, and forgets what passes.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, is_hypothesis_test, settings

ROOT = Path(__file__).parent.parent
PLACE = Path(os.environ.get("EXPLORED") or ROOT / ".hypothesis" / "explored")
"""Where failures are kept."""
LONG = 600
"""Letters of an example that are printed; the file has all of it."""

FOUND = "found.jsonl"
"""A line for each test that failed."""

DEFAULT = ("tests", "studies/template/tests")
"""Where property tests are looked for."""


class Explorer:
    """Plugin of pytest that runs property tests until time is over, each time in another order, and keeps what fails."""

    def __init__(self, minutes: float, seed: int, again: Sequence[str]) -> None:
        self.minutes, self.random, self.again = minutes, Random(seed), frozenset(again)
        self.found: dict[str, dict[str, str]] = {}
        self.ran = self.rounds = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what draws no examples; of what failed before, all else."""
        kept = [item for item in items if isinstance(item, pytest.Function) and is_hypothesis_test(item.function)]
        if self.again:
            kept = [item for item in kept if item.nodeid in self.again]
            for item in kept:
                own = item.function._hypothesis_internal_use_settings  # type: ignore[attr-defined]
                only = settings(own, phases=(Phase.explicit, Phase.reuse))
                item.function._hypothesis_internal_use_settings = only  # type: ignore[attr-defined]
        items[:] = kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests one after the other, over and over; time begins when they are collected."""
        until = time.monotonic() + self.minutes * 60
        while session.items and (self.rounds == 0 or not self.again):
            self.rounds += 1
            for item in self.random.sample(session.items, len(session.items)):
                if self.ran and time.monotonic() > until:
                    return True
                if item.nodeid in self.found:
                    continue
                self.ran += 1
                item._initrequest()  # type: ignore[attr-defined]  # a test that runs again has its fixtures anew
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what failed."""
        if report.failed:
            self.found[report.nodeid] = case(report.nodeid, report.longreprtext)


def case(test: str, text: str) -> dict[str, str]:
    """What is kept of a failure: the test, its smallest example, and what went wrong.

    >>> text = "E   Falsifying example: test_x(\\nE       n=3,\\nE   )\\nE   assert 3 < 3\\n"
    >>> case("a.py::test_x", text)["example"]
    '@example(n=3,)'
    """
    lines = [re.sub(r"  # or any other .*", "", re.sub(r"^E +", "", line)).strip() for line in text.splitlines()]
    shown = " ".join(lines)
    example = re.search(r"(?:Falsifying example|Falsifying explicit example|Failing test case): \w+\((.*?) \)(?= |$)", shown)
    blob = re.search(r"@reproduce_failure\(.*?\)", shown)
    wrong = [line[1:].strip() for line in text.splitlines() if re.match(r"E +\w", line)]
    line = next(
        (line for line in wrong if re.match(r"[\w.]*(Error|Warning|Exception|assert)\b", line)), wrong[0] if wrong else ""
    )
    return {
        "test": test, "example": f"@example({example[1].strip()})" if example else "", "error": line[:300],
        "again": blob[0] if blob else "", "text": text[-6000:],
    }  # fmt: skip


def read(place: Path) -> dict[str, dict[str, str]]:
    """What was kept, by test."""
    path = place / FOUND
    lines = path.read_text().splitlines() if path.exists() else []
    return {finding_["test"]: finding_ for finding_ in map(json.loads, lines)}


def write(place: Path, earlier: dict[str, dict[str, str]]) -> None:
    """Keep failures, instead of those that were there."""
    place.mkdir(parents=True, exist_ok=True)
    (place / FOUND).write_text("".join(json.dumps(finding_) + "\n" for finding_ in earlier.values()))


def explore(minutes: float, seed: int, again: Sequence[str], words: Sequence[str]) -> Explorer:
    """Run property tests in this process."""
    plugin = Explorer(minutes, seed, again)
    left = ("-n", "0", "-q", "--no-header", "--no-summary", "--tb=short", "-p", "no:cacheprovider", "-p", "no:terminalreporter")
    left = (*left, "-W", "ignore::pytest.PytestAssertRewriteWarning")  # Hypothesis is here already
    pytest.main([*left, *words], plugins=[plugin])
    return plugin


def _worker(given: argparse.Namespace) -> None:
    """Explore, and write what was found where the command reads it."""
    done = explore(given.minutes, given.seed, given.test, given.words)
    result = {"ran": done.ran, "rounds": done.rounds, "found": done.found}
    Path(given.into).write_text(json.dumps(result))


def _started(given: argparse.Namespace, again: Sequence[str], number: int, minutes: float) -> tuple[Path, Any]:
    """A process that explores: where it writes, and the process."""
    into = PLACE / f"worker{number}.json"
    into.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "tests.explore", "--into", str(into), "--minutes", str(minutes)]
    command += ["--seed", str(given.seed + number), *(word for test in again for word in ("--test", test))]
    command += [*(word for name in ("k",) if given.k for word in ("-k", given.k)), *given.paths]
    environment = os.environ | {"EXPLORED": str(PLACE), "DRAW": str(given.seed), "PYTHONPATH": str(ROOT)}
    return into, subprocess.Popen(command, cwd=ROOT, env=environment)


def _lines(findings: dict[str, dict[str, str]]) -> Iterator[str]:
    for finding_ in findings.values():
        yield f"\n{finding_['test']}\n  {finding_['error']}"
        yield from (f"  {finding_[name][:LONG]}" for name in ("example", "again") if finding_[name])


def main(words: Sequence[str] | None = None) -> int:
    """Explore in some processes, and print and keep what fails; 1 where something did."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many side by side (one a core)")
    parser.add_argument("--seed", type=int, default=None, help="of the order of tests, and of which of many cases are drawn")
    parser.add_argument("--again", action="store_true", help="try only what failed before, and forget what passes")
    parser.add_argument("-k", default="", help="as of pytest")
    parser.add_argument("--into", help=argparse.SUPPRESS)
    parser.add_argument("--test", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", default=list(DEFAULT), help="files and folders (all)")
    given = parser.parse_args(words)
    if given.seed is None:
        given.seed = time.time_ns() % 10**6
    if given.into:
        given.words = [*(("-k", given.k) if given.k else ()), *given.paths]
        _worker(given)
        return 0
    PLACE.mkdir(parents=True, exist_ok=True)
    before = read(PLACE)
    if given.again and not before:
        print("nothing was found before")
        return 0
    again = list(before) if given.again else []
    count = 1 if given.again else given.processes
    started = [_started(given, again, number, given.minutes) for number in range(count)]
    findings: dict[str, dict[str, str]] = {}
    ran = 0
    for into, process in started:
        process.wait()
        document = json.loads(into.read_text()) if into.exists() else {"ran": 0, "found": {}}
        ran += document["ran"]
        findings |= document["found"]
        if process.returncode or not into.exists():
            print(f"a process ended with {process.returncode}", file=sys.stderr)
    write(PLACE, findings if given.again else before | findings)
    print("\n".join(_lines(findings)))
    print(f"\n{ran} runs of property tests from seed {given.seed}: {len(findings)} failed; {PLACE / FOUND}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
