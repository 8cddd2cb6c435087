"""What designs are worth whose requests are played: each by itself; what all of them have used is worked out at once.

Mean iterations and the busiest ones of all runs are one array of iterations each, so that what an array costs is paid once.
"""

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.account.played import peak, served
from dse.evaluators.account.played.peak import Fullest, Kind
from dse.evaluators.account.played.served import Checked, Mean, Part, picked
from dse.evaluators.account.services import HERE, Done, several
from dse.evaluators.serving.loop import Served
from dse.space.design import Design
from dse.space.elementwise import Array
from dse.space.fields import leaves
from dse.space.later import later
from dse.space.workload import Load

POOLS = "mapping.serving.prefill_instances"
"""Says how many pools there are, in which designs that are worked out at once have to agree."""

ERROR = "step_price_error"
"""Is worked out when somebody asks for it, at once for all designs whose prices are equal."""

SIZES = ("tokens", "batch")
"""Of how requests are served, what says how many points a table of prices has."""


class Ran(NamedTuple):
    """What is kept of a design's run.

    Attributes:
        worth: its metrics beside what is used.
        means, fullest: of each pool, mean iterations as `served.by_span` has them, and what is under way at once.
        span: of the run. [s]
        tables: of prices.
        hosted: what went to hosts and came back. [B]
    """

    worth: dict[str, float]
    means: list[list[list[Mean]]]
    fullest: list[Fullest]
    span: float
    tables: list[Checked]
    hosted: float


def parts(design: Design) -> Iterator[Part]:
    """Rows of a design that differ in how instances serve alone, and the design that these are: other leaves are numbers."""
    columns = {address: np.ravel(value) for address, value, _ in leaves(design) if isinstance(value, np.ndarray)}
    apart = tuple(address for address in columns if not address.startswith(HERE) or address == POOLS)
    size = max((len(column) for column in columns.values()), default=1)
    said = np.array([np.broadcast_to(columns[address], size) for address in apart] or [np.zeros(size)], float)
    which = np.ravel(np.unique(said, axis=1, return_inverse=True)[1])
    for kind in range(int(which.max()) + 1):
        rows = np.flatnonzero(which == kind)
        if len(columns) > len(apart):
            yield rows, picked(design, rows, apart)
        else:
            yield from ((rows[[row]], picked(design, rows[[row]])) for row in range(len(rows)))


def metrics(
    service: ModuleType, design: Design, load: Load, fidelity: str, run: Callable[[Design], tuple[Served | None, list[Checked]]]
) -> dict[str, Any]:
    """What designs that keep all limits are worth, numbers or of shape (designs,); other arguments as of a service.

    Args:
        run: plays one of them, with its tables of prices; no run where no rate keeps a load's bounds, which is looked for by
            one design at a time.
    """
    size = several(design)
    found = dict[int, Ran]()
    for row in _largest_first(design, size) if size else [0]:
        one = picked(design, np.array([row])) if size else design
        served_, tables = run(one)
        if served_ is None:
            return {"max_rate": 0.0}
        load = served.of_run(load, served_)
        found[row] = _ran(service, one, load, served_, tables)
    rans = [found[row] for row in range(max(size, 1))]
    worth: dict[str, Any] = {name: np.array([ran.worth[name] for ran in rans]) for name in rans[0].worth}
    checked = [ran.tables for ran in rans]
    span = np.array([ran.span for ran in rans])
    pools = range(len(rans[0].means))
    done = [_means([ran.means[pool] for ran in rans]) for pool in pools]
    fullest = [_fullest([ran.fullest[pool] for ran in rans]) for pool in pools]

    def most() -> Any:
        return peak.peak(fullest, lambda pool, made_of: service.watts(design, load, pool, made_of, fidelity))

    def off() -> dict[str, Any]:
        errors = np.array([error.mean for error in served.errors_of(checked)])
        return {ERROR: errors if size else float(errors[0])}

    beside = later((ERROR,), off)
    if not size:
        numbers = {name: float(value[0]) for name, value in worth.items()} | beside
        one_each: Done = [
            [(float(times[0]), tuple(float(count[0]) for count in made_of)) for times, made_of in of] for of in done
        ]
        alone: dict[str, Any] = service.used(
            design, load, one_each, rans[0].span, fidelity, lambda: float(np.squeeze(most())), hosted=rans[0].hosted
        )
        return numbers | alone
    hosted = np.array([ran.hosted for ran in rans])
    used: dict[str, Any] = service.used(design, load, done, span, fidelity, most, hosted=hosted)
    return worth | beside | used


def _largest_first(design: Design, size: int) -> list[int]:
    """Rows of designs: a table of prices has the points of those of smaller iterations."""
    columns = [np.broadcast_to(-np.asarray(getattr(design.mapping.serving, name), float), size) for name in SIZES]
    order: list[int] = np.lexsort(columns[::-1]).tolist()
    return order


def _ran(service: ModuleType, one: Design, load: Load, run: Served, tables: list[Checked]) -> Ran:
    """Of one design; what the run holds beside is let go."""
    die, system = service.areas(one)
    worth = served.worth(run, load, die, system) | {"devices": float(service.devices(one))}
    worth |= {"max_rate": run.rate} if load.largest else {}
    means = [served.by_span(run, pool) for pool in range(len(run.pools))]
    hosted = served.hosted(run, service.holders(one, load), float(one.mapping.serving.host))
    return Ran(worth, means, peak.of_run(run), served.span(run), tables, hosted)


def _means(each: Sequence[Sequence[Sequence[Mean]]]) -> list[tuple[Array, tuple[Array, ...]]]:
    """Times and compositions of a pool's mean iterations, with prompts and without, span by span, shape (designs,).

    A design that has none of a span has it 0 times; where nobody has any, there is none.
    """
    found = []
    for prompts in range(2):
        for some in zip(*(means[prompts] for means in each), strict=True):
            usual = next((mean for mean in some if mean.times), None)
            if usual:
                made_of = [(mean if mean.times else usual).composition for mean in some]
                found.append((np.array([mean.times for mean in some]), tuple(np.array(made_of, float).T)))
    return found


def _fullest(each: Sequence[Fullest]) -> Fullest:
    """Of a pool of each design: iterations of shape (iterations, designs), those of a design that has fewer once more."""
    return Fullest(
        _kind([of.prompts for of in each]), _kind([of.decodes for of in each]), np.array([of.most for of in each], float)
    )


def _kind(each: Sequence[Kind]) -> Kind:
    most = np.array([of.most for of in each], float)
    longest = max((len(of.made_of[0]) for of in each if of.made_of), default=0)
    if not longest:
        return Kind((), most)
    usual = next(of.made_of for of in each if of.made_of)
    all_of = [of.made_of or usual for of in each]
    most = np.where([bool(of.made_of) for of in each], most, 0.0)
    turns = np.arange(longest)
    columns = (np.stack([np.ravel(of[axis])[turns % len(of[axis])] for of in all_of], axis=1) for axis in range(len(usual)))
    return Kind(tuple(columns), most)
