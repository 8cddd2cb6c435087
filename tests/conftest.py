"""Property tests draw the same examples each time, so that a run depends on the change alone; `tests.explore` draws new ones.

Who runs tests in the background of a shell ignores Ctrl-C and closed terminals, and so would what they start.
"""

import gc
import os
import signal
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import is_hypothesis_test, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from dse.config import compose
from dse.main import SWEEP
from tests.marks import is_slow, unmet
from tests.samples import asked

gc.set_threshold(*SWEEP)
EXPLORED = os.environ.get("EXPLORED", "")
"""Folder in which `tests.explore` keeps examples that failed; empty where the same examples are drawn each time."""

if EXPLORED:
    kept = DirectoryBasedExampleDatabase(EXPLORED)
    settings.register_profile("drawn", deadline=None, database=kept, print_blob=True)
else:
    settings.register_profile("drawn", deadline=None, derandomize=True, database=None)
settings.load_profile("drawn")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as of a command that is to outlive its terminal
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


FORMER_STACKS = {"groq": "ideal", "trtllm_v1_ep": "tuned_ep"}
"""Flat stacks of chips whose usual stack is of an engine; `tuned` for the others."""


@pytest.fixture(scope="module")
def flat_stack() -> Iterator[None]:
    """Chips have the flat rates of `tuned` and no inference engine where nothing else is said: for results by hand."""
    names, composed = compose._usual_names, compose._usual_of_composed

    def flat(usual: tuple[str, str, str]) -> tuple[str, str, str]:
        mapping, stack, _ = usual
        own = stack if stack in ("", "usual", "ideal", "tuned_ep") else FORMER_STACKS.get(stack, "tuned")
        return mapping, own, ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "_usual_names", lambda *words: flat(names(*words)))
        patch.setattr(compose, "_usual_of_composed", lambda *words: flat(composed(*words)))
        asked.cache_clear()  # the same words ask another question before and after
        yield
    asked.cache_clear()


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, as what starts processes, stores and browsers mostly waits for them."""
    return (os.cpu_count() or 1) + 1


FEW = 8
"""Cases of a property that all run."""


DRAW = os.environ.get("DRAW", "0")
"""Which cases of tests of many are drawn: the same ones each time, until another word is said."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is slow; what takes longest of the rest goes first, so that nobody waits for it in the end."""
    named = any("::" in word for word in config.args)  # a test that is named runs
    if not named and (tests := unmet(items)):
        raise pytest.UsageError(f"a condition of slow_if holds for no case of: {', '.join(tests)}")
    if os.environ.get("SLOW") != "all" and not named:
        left_out = {item for item in items if is_slow(item)}
        left_out |= set(unsampled([item for item in items if item not in left_out]))
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=first)


FIRST = ("test_inputs.py", "test_bursts_of_tiles.py", "test_documents.py", "published")
"""Files and folders that begin: they take longest. The first ones compile the longest loops, each others: a worker that needs
the same waits for who compiles it."""


def first(item: pytest.Item) -> int:
    """A place among what begins; all else comes after."""
    names = {item.path.name, item.path.parent.name}
    return next((place for place, name in enumerate(FIRST) if name in names), len(FIRST))


def unsampled(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """What is left out of tests with the mark `sampled`: two thirds of their cases. Properties draw a third of their examples,
    in all cases where these are few.
    """
    cases: dict[str, list[pytest.Function]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled"):
            cases.setdefault(name, []).append(item)
    for name, functions in cases.items():
        if len(functions) > FEW or not is_hypothesis_test(functions[0].function):
            yield from rest(functions, Random(f"{DRAW} {name}"))
        if not is_hypothesis_test(functions[0].function):
            continue
        own: settings = functions[0].function._hypothesis_internal_use_settings  # what Hypothesis's own plugin asks
        least = min(own.max_examples, 3)
        functions[0].function._hypothesis_internal_use_settings = settings(own, max_examples=max(own.max_examples // 3, least))


def rest(cases: list[pytest.Function], rng: Random) -> list[pytest.Function]:
    """All but a third of some cases, which is drawn so that it has as many values of their parameters as it can."""
    left, seen = rng.sample(cases, len(cases)), set[tuple[str, str]]()
    known = {case: values(case) for case in cases}
    for _ in range(-(-len(cases) // 3)):
        best = max(left, key=lambda case: len(known[case] - seen))
        left.remove(best)
        seen |= known[best]
    return left


def values(item: pytest.Function) -> set[tuple[str, str]]:
    """Parameters of a case, each with its value: an object, or what a constant says, as workers have to draw the same cases."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    return {(name, repr(value) if isinstance(value, CONSTANT) else f"object {id(value)}") for name, value in given.items()}


CONSTANT = (str, int, float, tuple)
"""What a module that is compiled may have once and the same module, loaded, twice."""


def pytest_collection_finish() -> None:
    """What has been imported and collected stays: the search for unused cycles looks at what tests make."""
    gc.collect()
    gc.freeze()
