"""Constants of library kernels for expert dispatch and combine.

Their meaning for time is in ``evaluators/cost_models/die_exchange_jobs.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import integer_field, quantity_field, record_class


@record_class
class MoeAllToAllConstants:
    """Fitted constants of one library's expert dispatch and combine by writes to peers' memory."""

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
        "that send or, where tokens go by boxes (exchange=by_node), forward in a box; what is computed meanwhile "
        "(overlap=halves) has the others",
        low=0,
    )
