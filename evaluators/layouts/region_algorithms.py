"""Algorithms of products on a region: needs of each, and candidates where the plan leaves it open."""

from functools import reduce
from typing import Any, NamedTuple

from dse.evaluators.calls.call import AlgorithmCandidate
from dse.evaluators.kernels import gemm as gemms
from dse.evaluators.kernels import gemv as gemvs
from dse.evaluators.kernels.gemm import GEMM, find_gemm
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.gemv import GEMV, find_gemv
from dse.evaluators.layouts.region_calls import gemm_algorithm
from dse.space.array_math import maximum, minimum, where
from dse.space.chip import Chip
from dse.space.errors import choose_option
from dse.space.mapping import AUTO, RegionPlan


class _Candidate(NamedTuple):
    """An algorithm, the cores of a line that it needs, and routing paths that a core is part of at a time."""

    word: str
    least: Any
    paths: Any


def refuse_unknown_algorithms(phase: str, plan: RegionPlan) -> None:
    """Refuse algorithm options that no kernel has.

    Raises:
        DesignError: one that is not registered.
    """
    words = {word: getattr(plan, word) or plan.gemm for word in ("gemm", "gemm_attention", "gemm_ffn")}
    for word, said in {**words, "gemv": plan.gemv}.items():
        if said != AUTO:
            choose_option(GEMV if word == "gemv" else GEMM, said, f"mapping.{phase}.{word}")


def is_left_open(plan: RegionPlan) -> bool:
    """Whether a plan leaves the algorithm of its kernels open."""
    return AUTO in (plan.gemm, plan.gemv, plan.gemm_attention, plan.gemm_ffn)


def region_candidates(chip: Chip, plan: RegionPlan, mesh: CoreMesh) -> dict[str, tuple[AlgorithmCandidate, ...]]:
    """Candidate algorithms of a region's kernels, by kind."""
    return {
        kind: tuple(AlgorithmCandidate(one.word, _fits(chip, mesh, one)) for one in _candidates(chip, plan, kind, AUTO, mesh))
        for kind in ("gemm", "gemv")
    }


def algorithm_needs(chip: Chip, plan: RegionPlan, phase: str, mesh: CoreMesh) -> tuple[Any, Any]:
    """Cores per line, and routing paths per core, that the algorithms of a phase need. [-]

    Of those that kernels choose among, what the first one needs that fits; or the first one, where none does.
    """
    kinds = {("gemv", plan.gemv)} | {
        ("gemm", gemm_algorithm(plan, part)) for part in ("attention", "ffn") if phase == "prefill"
    }
    found = [_first_that_fits(chip, mesh, _candidates(chip, plan, kind, word, mesh)) for kind, word in kinds]
    least, paths = (reduce(maximum, column) for column in zip(*found, strict=True))
    return least, paths


def _candidates(chip: Chip, plan: RegionPlan, kind: str, word: str, mesh: CoreMesh) -> list[_Candidate]:
    """The algorithm of a word, or all that kernels choose among; main memory at the edge has a path of its own."""
    edge = 0 if chip.hbm is None else 1
    if kind == "gemm":
        words: tuple[str, ...] = gemms.GEMM_CANDIDATES if word == AUTO else (word,)
        return [_Candidate(one, find_gemm(one).MIN_SIDE, find_gemm(one).concurrent_paths(mesh) + edge) for one in words]
    words = gemvs.GEMV_CANDIDATES if word == AUTO else (word,)
    each = [(one, plan.ktree_k if one == "ktree" else 1) for one in words]
    return [_Candidate(one, least, find_gemv(one).concurrent_paths(mesh, plan.ktree_k) + edge) for one, least in each]


def _fits(chip: Chip, mesh: CoreMesh, of: _Candidate) -> Any:
    """Whether a region and the routers of a chip are large enough."""
    return (of.least <= minimum(mesh.rows, mesh.cols)) & (of.paths <= chip.noc.routing_paths)


def _first_that_fits(chip: Chip, mesh: CoreMesh, some: list[_Candidate]) -> tuple[Any, Any]:
    found = some[0].least, some[0].paths
    for one in reversed(some):
        fits = _fits(chip, mesh, one)
        found = where(fits, one.least, found[0]), where(fits, one.paths, found[1])
    return found
