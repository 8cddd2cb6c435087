"""Cache of the generations of Optuna's genetic samplers, so that an ask has constant cost.

Optuna would find them anew from all trials at each ask.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any


class GenerationCache:
    """Cached generations of one sampler, which reads them from here.

    Args:
        sampler: of Optuna's, genetic.
    """

    def __init__(self, sampler: Any) -> None:
        self._key, self._prefix = sampler._get_generation_key(), sampler._get_parent_cache_key_prefix()
        self._size, self._look = int(sampler.population_size), sampler.get_parent_population
        self._counts = Counter[int]()
        self._parents: dict[int, list[Any]] = {}
        sampler.get_trial_generation, sampler.get_parent_population = self.generation_of, self.parents

    def complete(self, marks: Mapping[str, Any]) -> None:
        """Count a completed trial, by its system attributes."""
        if self._key in marks:
            self._counts[marks[self._key]] += 1

    def generation_of(self, study: Any, trial: Any) -> int:
        """Generation of a trial: the last one until it is full."""
        known = trial.system_attrs.get(self._key)
        if known is not None:
            return int(known)
        last = max(self._counts, default=0)
        generation = last + 1 if self._counts[last] >= self._size else last
        study._storage.set_trial_system_attr(trial._trial_id, self._key, generation)
        return generation

    def parents(self, study: Any, generation: int) -> list[Any]:
        """Parent trials of a generation; completed ones, which change no more."""
        if generation in self._parents:
            return self._parents[generation]
        settled = self._prefix + str(generation) in study._storage.get_study_system_attrs(study._study_id)
        parents: list[Any] = self._look(study, generation)
        if settled:  # those that have just been chosen come in another order, which the first ask of a generation has alone
            self._parents = {generation: parents}
        return parents
