"""The marks of tests that take long: `slow`, on a test or by `slow_if` on some of its cases, and `sampled`.

`tests/conftest.py` reads them, and leaves out what they say unless SLOW=all; a test that is named runs in full.
"""

from collections.abc import Callable, Iterable
from inspect import signature

import pytest


def slow_if(condition: Callable[..., bool]) -> pytest.MarkDecorator:
    """Marks as slow the cases that a condition holds for; its arguments are parameters of the test, by name."""
    return pytest.mark.slow.with_args(condition)


def is_slow(item: pytest.Item) -> bool:
    """Whether a case has the mark `slow`, and the condition holds where the mark has one."""
    return any(not mark.args or _holds(mark.args[0], item) for mark in item.iter_markers("slow"))


def unmet(items: Iterable[pytest.Item]) -> list[str]:
    """Tests with a condition of `slow_if` that holds for none of their cases: what it was written for has another name now."""
    met: dict[tuple[str, Callable[..., bool]], bool] = {}
    for item in items:
        for mark in item.iter_markers("slow"):
            for condition in mark.args:
                key = item.nodeid.partition("[")[0], condition
                met[key] = met.get(key, False) or _holds(condition, item)
    return [name for (name, _), some in met.items() if not some]


def _holds(condition: Callable[..., bool], item: pytest.Item) -> bool:
    given = item.callspec.params if hasattr(item, "callspec") else {}
    names = signature(condition).parameters
    if missing := sorted(set(names) - set(given)):
        raise pytest.UsageError(f"{item.nodeid}: slow_if asks for {', '.join(missing)}; its parameters are {', '.join(given)}")
    return bool(condition(*(given[name] for name in names)))
