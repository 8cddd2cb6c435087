"""Layouts that serve are registered by software, and each answers all that is asked of one."""

from abc import abstractmethod
from typing import Any

import pytest

from dse.evaluators.accounting.layout_registry import SERVING_LAYOUTS
from dse.evaluators.accounting.serving_instances import tensor_parallel
from dse.evaluators.accounting.serving_instances.serving_layout import ServingLayout
from dse.evaluators.accounting.serving_instances.tensor_parallel import TensorParallelServing
from dse.evaluators.workloads.serving import serving_layout_of_software


@pytest.mark.parametrize("software", SERVING_LAYOUTS)
def test_a_registered_layout_is_complete_and_one_object(software: str) -> None:
    layout = serving_layout_of_software(software)
    assert isinstance(layout, ServingLayout)
    assert layout is serving_layout_of_software(software)


def test_a_layout_that_lacks_methods_fails_when_it_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Headless(TensorParallelServing):
        @abstractmethod
        def instances(self, design: Any, load: Any, fidelity: str) -> Any: ...

        @abstractmethod
        def kv_path(self, design: Any, load: Any) -> Any: ...

    monkeypatch.setattr(tensor_parallel, "Headless", Headless, raising=False)
    monkeypatch.setitem(SERVING_LAYOUTS, "serve headless", "serving_instances.tensor_parallel:Headless")
    with pytest.raises(TypeError) as refused:
        serving_layout_of_software("serve headless")
    assert str(refused.value) == (
        "layout serving_instances.tensor_parallel:Headless lacks instances, kv_path, which each ServingLayout has"
    )
