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
from dse.space.main_memory import has_main_memory
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
    for word, name in {**words, "gemv": plan.gemv}.items():
        if name != AUTO:
            choose_option(GEMV if word == "gemv" else GEMM, name, f"mapping.{phase}.{word}")


def is_left_open(plan: RegionPlan) -> bool:
    """Whether a plan leaves the algorithm of its kernels open."""
    return AUTO in (plan.gemm, plan.gemv, plan.gemm_attention, plan.gemm_ffn)


def region_candidates(chip: Chip, plan: RegionPlan, mesh: CoreMesh) -> dict[str, tuple[AlgorithmCandidate, ...]]:
    """Candidate algorithms of a region's kernels, by kind."""
    return {
        kind: tuple(
            AlgorithmCandidate(candidate.word, _fits(chip, mesh, candidate))
            for candidate in _candidates(chip, plan, kind, AUTO, mesh)
        )
        for kind in ("gemm", "gemv")
    }


def algorithm_needs(chip: Chip, plan: RegionPlan, phase: str, mesh: CoreMesh) -> tuple[Any, Any]:
    """Cores per line, and routing paths per core, that the algorithms of a phase need. [-]

    Of those that kernels choose among, what the first one needs that fits; or the first one, where none does.
    """
    kinds = {("gemv", plan.gemv)} | {
        ("gemm", gemm_algorithm(plan, part)) for part in ("attention", "ffn") if phase == "prefill"
    }
    needs = [_first_that_fits(chip, mesh, _candidates(chip, plan, kind, word, mesh)) for kind, word in kinds]
    least, paths = (reduce(maximum, column) for column in zip(*needs, strict=True))
    return least, paths


def _candidates(chip: Chip, plan: RegionPlan, kind: str, word: str, mesh: CoreMesh) -> list[_Candidate]:
    """The algorithm of a word, or all that kernels choose among; main memory at the edge has a path of its own."""
    edge = int(has_main_memory(chip))
    if kind == "gemm":
        words: tuple[str, ...] = gemms.GEMM_CANDIDATES if word == AUTO else (word,)
        return [_Candidate(word, find_gemm(word).MIN_SIDE, find_gemm(word).concurrent_paths(mesh) + edge) for word in words]
    words = gemvs.GEMV_CANDIDATES if word == AUTO else (word,)
    each = [(word, plan.ktree_k if word == "ktree" else 1) for word in words]
    return [_Candidate(name, least, find_gemv(name).concurrent_paths(mesh, plan.ktree_k) + edge) for name, least in each]


def _fits(chip: Chip, mesh: CoreMesh, candidate: _Candidate) -> Any:
    """Whether a region and the routers of a chip are large enough."""
    return (candidate.least <= minimum(mesh.rows, mesh.cols)) & (candidate.paths <= chip.noc.routing_paths)


def _first_that_fits(chip: Chip, mesh: CoreMesh, candidates: list[_Candidate]) -> tuple[Any, Any]:
    needs = candidates[0].least, candidates[0].paths
    for candidate in reversed(candidates):
        fits = _fits(chip, mesh, candidate)
        needs = where(fits, candidate.least, needs[0]), where(fits, candidate.paths, needs[1])
    return needs
