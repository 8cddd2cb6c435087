"""Constants of library kernels for expert dispatch and combine.

Their meaning for time is in ``evaluators/cost_models/die_exchange_jobs.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import integer_field, quantity_field, record_class


@record_class
class MoeAllToAllConstants:
    """Fitted constants of one library's expert dispatch and combine by writes to peers' memory."""

    dispatch_start: Number = quantity_field("s", "start and end of a dispatch, until all dies know that everything has arrived")
    dispatch: Number = quantity_field("1", "share of the links' bandwidth that tokens reach", high=1.0, positive=True)
    combine_start: Number = quantity_field("s", "start and end of a combine")
    combine: Number = quantity_field("1", "share of the links' bandwidth that results reach", high=1.0, positive=True)
    dispatch_core: Any = quantity_field(
        "B/s", "rate at which one of `cores` sends tokens; cores are no limit if absent", positive=True, absent=True
    )
    combine_core: Any = quantity_field("B/s", "likewise of results", positive=True, absent=True)
    dispatch_token: Any = quantity_field(
        "B/s",
        "rate of a token through the core that sends it; the width takes no time if absent",
        positive=True,
        absent=True,
    )
    combine_token: Any = quantity_field("B/s", "rate of a result through the core that sends it", positive=True, absent=True)
    cores: Number = integer_field(
        "cores that send tokens or, with all_to_all=hierarchical, forward them inside a node; with "
        "overlap=two_batch, computation uses the other cores",
        low=0,
    )
