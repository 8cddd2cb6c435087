"""Settings of a study beside its question, as declared records.

Screen, search, verification, workers and report: fields say what a setting means, its unit and its range, and
`dse.config.record_parser` checks them. What depends on several settings, or on the space, is checked where the study is built
(`dse.execution.study`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dse.config.renamed_addresses import overridden_leaves
from dse.execution.pool.worker_settings import WorkerSettings
from dse.search.optuna_samplers import SAMPLERS
from dse.space.fields import (
    boolean_field,
    group_field,
    integer_field,
    iterate_leaves,
    leaf_at,
    list_field,
    option_field,
    quantity_field,
    record_class,
    text_field,
)

STEADY = "steady_state"
SCREEN_FIDELITIES = ("analytical", STEADY)
"""Fidelities at which many designs are evaluated together."""

CERTIFY = "certify"
"""The search that proves by how much a front may be beaten, instead of a sampler."""

ALL, FRONT = "all", "front"
"""Which designs of a screen are kept."""

STACK_PARTS = ("part", "operator")
"""What a picture's stacks are of: parts of the machine that bind, or operators."""

NO_SCREEN = {"screen.run": (False,)}
NO_SEARCH = ("none", CERTIFY)
NO_POPULATION = tuple(name for name in (*NO_SEARCH, *SAMPLERS) if name not in ("local", "nsga2", "nsga3"))
NO_VERIFICATION = {"verify.fidelity": ("none",)}
"""Settings, by address, and values of theirs with which others have no effect."""


@record_class
class ScreenSettings:
    """Settings of the screen, which evaluates the whole space or a sample of it before the search."""

    run: bool = boolean_field("whether the space is screened before the search")
    limit: int = integer_field(
        "designs of the largest grid that is evaluated whole; of a larger one, a sample of at most as many", unread=NO_SCREEN
    )
    seeds: int = integer_field("designs of the screen's front that seed the search, at most", low=0, unread=NO_SCREEN)
    keep: str = option_field(
        "designs in the screen's files: all, or the front and an even sample where the others are too many",
        (ALL, FRONT),
        unread=NO_SCREEN,
    )
    prune: bool = boolean_field("whether designs that bounds keep off the front are left out without being evaluated")
    folder: str | None = text_field(
        "folder of the screen's files; null for RUN_DIR/screen", "a folder, as a path or s3://BUCKET/FOLDER", absent=True
    )
    fidelity: str | None = option_field("fidelity of the screen; null for that of the search", SCREEN_FIDELITIES, absent=True)


@record_class
class StopSettings:
    """What may end a search before its budget."""

    time: float | None = quantity_field("s", "time limit of this run", positive=True, absent=True)
    stagnation: int | None = integer_field(
        "designs over which the hypervolume of the front must grow", absent=True, unread={"search.sampler": NO_SEARCH}
    )
    growth: float = quantity_field(
        "1",
        "share by which the hypervolume must grow over these designs",
        positive=True,
        below=1.0,
        unread={"search.stop.stagnation": (None,), "search.sampler": NO_SEARCH},
    )


@record_class
class SearchSettings:
    """Settings of the search, which proposes designs until its budget is spent."""

    sampler: str = option_field("algorithm that proposes designs", ("auto", "none", CERTIFY, *SAMPLERS))
    budget: int = integer_field(
        "designs of the search; those of a warm start are not counted", low=0, unread={"search.sampler": NO_SEARCH}
    )
    window: int = integer_field("designs in flight; with the seed it decides the result")
    population: int = integer_field(
        "population of genetic samplers; the most Sobol points that local starts from",
        low=2,
        unread={"search.sampler": NO_POPULATION},
    )
    promote: str | None = option_field(
        "lower fidelity that evaluates designs first; null for one fidelity", SCREEN_FIDELITIES, absent=True
    )
    warm_start: tuple[str, ...] = list_field(
        "studies that ran here, or stores, whose results are taken over",
        text_field("a study or a store", "a study or a store"),
        "studies or stores, as in [quickstart]",
        empty=True,
    )
    stop: StopSettings
    gap: float | None = quantity_field(
        "1", "of certify: share by which a design may beat the front, as in 1%", below=1.0, absent=True
    )
    boxes: int = integer_field(
        "of certify: parts of the space that are bounded at most", unread={"search.sampler": ("auto", "none", *SAMPLERS)}
    )


@record_class
class VerifySettings:
    """Settings of the verification, which evaluates the best designs again at a higher fidelity."""

    fidelity: str = text_field("fidelity of the verification: next, a name above the study's own, or none", "a fidelity")
    designs: int = integer_field("best designs that are verified at most", unread=NO_VERIFICATION)
    submesh: int = integer_field(
        "cores of a side on which cycles simulate; 0 for meshes as they are", low=0, unread=NO_VERIFICATION
    )
    off_front: int = integer_field(
        "designs off the front that are verified too, for the rank agreement", low=0, unread=NO_VERIFICATION
    )
    strata: int = integer_field(
        "strata of the designs off the front, of which as many are drawn each",
        unread={**NO_VERIFICATION, "verify.off_front": (0,)},
    )
    seeds: int = integer_field("streams of requests with which each of the best is simulated", unread=NO_VERIFICATION)


@record_class
class RaySettings:
    """The Ray cluster of a study's workers."""

    address: str | None = text_field(
        "address of a running cluster; null starts Ray on this machine", "an address, as HOST:PORT", absent=True
    )


@record_class
class LinePicture:
    """One picture of lines in a report: a metric over a knob."""

    x: str = text_field("knob across", "the address of a knob")
    y: str = text_field("metric up", "the name of a metric")
    by: str | None = text_field("knob with a line for each of its values", "the address of a knob", absent=True)
    each: str | None = option_field("whether each case has a picture of its own", ("case",), absent=True)


@record_class
class BarPicture:
    """One picture of stacked times in a report, over a knob."""

    x: str = text_field("knob across", "the address of a knob")
    of: str = option_field("what the stacks are of: parts of the machine that bind, or operators", STACK_PARTS, default="part")
    each: str | None = option_field("whether each case has a picture of its own", ("case",), absent=True)


@record_class
class ReportSettings:
    """Settings of a study's report: its pictures and named designs."""

    lines: tuple[LinePicture, ...] = list_field(
        "pictures of lines", LinePicture, "pictures, as in [{x: KNOB, y: METRIC, by: KNOB, each: case}]", empty=True
    )
    points: Mapping[str, Any] = group_field("designs with a name: {NAME: {KNOB: VALUE}}", "{NpuSim: {chip: npu64}}")
    bars: tuple[BarPicture, ...] = list_field(
        "pictures of stacked times", BarPicture, "pictures, as in [{x: KNOB, of: operator, each: case}]", empty=True
    )


GROUPS: Mapping[str, type] = {
    "screen": ScreenSettings,
    "search": SearchSettings,
    "verify": VerifySettings,
    "workers": WorkerSettings,
    "ray": RaySettings,
    "report": ReportSettings,
}
"""Records of the groups of a study's settings, by their addresses."""


def describe_unread_settings(groups: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Typed settings that have no effect with the others, a line each.

    Args:
        groups: records of settings by the address of their group.
        overrides: as typed.
    """
    declared = {address: spec for name, group in groups.items() for address, _, spec in iterate_leaves(group, f"{name}.")}
    lines = []
    typed = overridden_leaves(overrides, declared)
    for address in filter(typed.__contains__, declared):
        for other, words in declared[address].metadata.get("unread", {}).items():
            group, _, name = other.partition(".")
            value = leaf_at(groups[group], name)
            if value in words:
                lines.append(f"{address} has no effect with {other}={format_setting(value)}")
                break
    return lines


def format_setting(value: Any) -> str:
    """A setting as YAML and overrides write it.

    >>> format_setting(False), format_setting(None), format_setting("local")
    ('false', 'null', 'local')
    """
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
