"""Note on constants of a software stack that were fitted on other chips than the one they are used on.

A stack or a part of a stack lists the chips on which its numbers were fitted, and similar chips for which they are meant
(`dse.config.record_parser.ORIGIN`). On any other chip these numbers are an extrapolation that nobody has measured.
"""

from collections.abc import Collection, Iterable, Mapping

from dse.config.record_parser import STACK, ConstantSource
from dse.config.unread_stack_leaves import find_unread_stack_leaves
from dse.space.design import Design
from dse.space.workload import Workload


def describe_foreign_constants(
    sources: Iterable[ConstantSource], names: Mapping[str, str], base: Design, asked_for: Workload, moved: Collection[str] = ()
) -> str:
    """One line on the constants in use that were fitted on other chips only; empty string if none.

    Args:
        sources: of one chip's design.
        names: what was chosen by name: chip, stack.
        base, asked_for, moved: by which it is known what nothing reads, as
            `dse.config.unread_stack_leaves.find_unread_stack_leaves` has them.
    """
    unread, parts = find_unread_stack_leaves(base, asked_for, moved), dict[tuple[str, ...], dict[str, None]]()
    for source in sources:
        name, inner, _ = source.address.rpartition(": ")[2].removeprefix(f"{STACK}.").partition(".")
        if source.fitted_on and name not in unread and names["chip"] not in (*source.fitted_on, *source.meant_for):
            parts.setdefault(source.fitted_on, {})[name if inner else "flat rates"] = None
    if not parts:
        return ""
    parts_text = " and ".join(f"{', '.join(part)} on {' and '.join(chips)}" for chips, part in parts.items())
    return f"stack={names['stack']} was fitted on other chips ({parts_text}); on chip={names['chip']} it is extrapolated"
