"""Constants of software that were fitted on chips other than the one they are asked on: an answer says so.

A stack, or a part of one, says on which chips its numbers were fitted, and for which others alike they are meant
(`dse.config.record_parser.ORIGIN`). On any other chip they are still what a library reaches of a peak, and nobody has
measured that.
"""

from collections.abc import Collection, Iterable, Mapping

from dse.config.record_parser import STACK, ConstantSource
from dse.config.unread_stack_leaves import unread_stack_leaves
from dse.space.design import Design
from dse.space.workload import Workload


def foreign_constants_note(
    sources: Iterable[ConstantSource], names: Mapping[str, str], base: Design, asked_for: Workload, moved: Collection[str] = ()
) -> str:
    """Which of the constants that are read were fitted on other chips alone, in one line; "" where none were.

    Args:
        sources: of one chip's design.
        names: what was chosen by name: chip, stack.
        base, asked_for, moved: by which it is known what nothing reads, as `dse.config.unread_stack_leaves.unread_of_stack`
        has them.
    """
    unread, parts = unread_stack_leaves(base, asked_for, moved), dict[tuple[str, ...], dict[str, None]]()
    for of in sources:
        name, inner, _ = of.address.rpartition(": ")[2].removeprefix(f"{STACK}.").partition(".")
        if of.fitted_on and name not in unread and names["chip"] not in (*of.fitted_on, *of.meant_for):
            parts.setdefault(of.fitted_on, {})[name if inner else "flat rates"] = None
    if not parts:
        return ""
    said = " and ".join(f"{', '.join(some)} on {' and '.join(chips)}" for chips, some in parts.items())
    return f"stack={names['stack']} was fitted elsewhere ({said}); on chip={names['chip']} it is extrapolated"
