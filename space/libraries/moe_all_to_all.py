"""Constants of kernels that send tokens to their experts and bring results back; for what they mean see
``evaluators/cost_models/die_exchange_jobs.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import integer_field, quantity_field, record_class


@record_class
class MoeAllToAllConstants:
    """One library's exchanges with experts, which write into the memories of other dies and flag what has come."""

    dispatch_start: Number = quantity_field("s", "start of a dispatch and its end, until all know that all has come")
    dispatch: Number = quantity_field("1", "share of the links' bandwidth that tokens reach", high=1.0, positive=True)
    combine_start: Number = quantity_field("s", "start of a combine and its end")
    combine: Number = quantity_field("1", "share of the links' bandwidth that results reach", high=1.0, positive=True)
    dispatch_core: Any = quantity_field(
        "B/s", "of tokens that one of `cores` sends; absent: cores are no limit", positive=True, absent=True
    )
    combine_core: Any = quantity_field("B/s", "likewise of results", positive=True, absent=True)
    dispatch_token: Any = quantity_field(
        "B/s",
        "of a token on its way through the core that sends it; absent: its width takes no time",
        positive=True,
        absent=True,
    )
    combine_token: Any = quantity_field("B/s", "likewise of a result", positive=True, absent=True)
    cores: Number = integer_field(
        "that send or, where tokens go by boxes (all_to_all=hierarchical), forward in a box; what is computed meanwhile "
        "(overlap=two_batch) has the others",
        low=0,
    )
