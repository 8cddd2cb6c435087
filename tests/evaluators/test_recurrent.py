"""States of recurrent layers are what their published recurrences say, and take what their closed form says."""

from typing import Any

import numpy as np
import pytest

from dse.evaluators.cost_models.event_simulator import simulate_events as timed
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.vector.recurrent_decode import RULE_OPERATIONS, update_kernel
from dse.evaluators.kernels.vector.row_kernels import RowBlock, build_program, cost, gather_result, scatter_operands
from dse.evaluators.machine.memory_channels import ColumnMemory, mesh_channels
from dse.evaluators.program.activity import COUNTS
from dse.evaluators.program.kernel_ir import Program, StoreInstruction
from dse.space.array_math import Array
from dse.testing.functional_simulator import run_program
from tests.agreement.test_events import CYCLES
from tests.agreement.test_strands import ENGINES

MESH, KEYS, VALUES = CoreMesh(2, 3), 5, 4


def told(rule: str, v: dict[str, Array], state: Array) -> tuple[Array, Array]:
    """One token by the recurrence as it is published, state by state: shapes (states, keys, values) and (states, values)."""
    states, outs = [], []
    for row in range(len(state)):
        k, q, value, beta = (v[name][row].ravel() for name in ("k", "q", "v", "beta"))
        a = np.diag(np.broadcast_to(v["decay"][row].ravel(), KEYS))
        if rule.endswith("delta"):  # S = (I - beta k k^T) Diag(a) S + beta k v^T
            new = (np.eye(KEYS) - beta * np.outer(k, k)) @ a @ state[row] + beta * np.outer(k, value)
        else:
            new = a @ state[row] + (beta if rule == "ssd" else 1.0) * np.outer(k, value)
        states.append(new)
        outs.append(new.T @ q)
    return np.stack(states), np.stack(outs)


def drawn(rule: str, rows: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    v = {name: rng.normal(size=(rows, KEYS, 1)) for name in ("k", "q")} | {"v": rng.normal(size=(rows, 1, VALUES))}
    v["decay"] = rng.uniform(0.5, 1, (rows, KEYS if rule == "channel_delta" else 1, 1))
    return v | {"beta": rng.uniform(size=(rows, 1, 1)), "state": rng.normal(size=(rows, KEYS, VALUES))}


@pytest.mark.parametrize("rows", [1, 5, 13, 37])
@pytest.mark.parametrize("rule", RULE_OPERATIONS)
def test_a_token_updates_states_as_published(rule: str, rows: int) -> None:
    recipe, block, v = update_kernel(rule, KEYS), RowBlock(2, VALUES), drawn(rule, rows, rows)
    program = build_program(recipe, rows, block, MESH, "float32", channels=3)
    out = run_program(program, {}, scatter_operands({name: v[name][None] for name in recipe.loads}, recipe, block, MESH))
    state, read = told(rule, v, v["state"])
    stored = {key: value for key, value in out.items() if "/" in key or rows > 12}
    assert gather_result(stored, "next", rows) == pytest.approx(state, abs=1e-5)
    assert gather_result(stored, "out", rows)[:, 0] == pytest.approx(read, abs=1e-5)


@pytest.mark.parametrize("rule", RULE_OPERATIONS)
def test_states_that_stay_are_updated_where_they_are(rule: str) -> None:
    recipe, block, rows, v = update_kernel(rule, KEYS, resident=True), RowBlock(2, VALUES), 12, drawn(rule, 12, 1)
    program = build_program(recipe, rows, block, MESH, "float32", channels=3)
    state_last = scatter_operands({"state": v["state"][None]}, recipe, block, MESH)["state/last"].reshape(2, 3, KEYS, VALUES, 2)
    out = run_program(
        program, {"state": state_last}, scatter_operands({name: v[name][None] for name in recipe.loads}, recipe, block, MESH)
    )
    state, read = told(rule, v, v["state"])
    assert gather_result({"state/last": out["state"].reshape(1, 6, KEYS, VALUES, 2)}, "state", rows) == pytest.approx(
        state, abs=1e-5
    )
    assert gather_result({"out/last": out["out/last"]}, "out", rows)[:, 0] == pytest.approx(read, abs=1e-5)
    assert "state" not in {
        step.slot for turn in program.strands[0] for step in turn.steps if isinstance(step, StoreInstruction)
    }  # type: ignore


@pytest.mark.parametrize("rule", RULE_OPERATIONS)
def test_an_update_that_goes_elsewhere_is_found(rule: str) -> None:
    from dataclasses import replace

    from dse.evaluators.program.kernel_ir import Round, VectorInstruction

    recipe, block, rows, v = update_kernel(rule, KEYS), RowBlock(2, VALUES), 12, drawn(rule, 12, 2)
    program = build_program(recipe, rows, block, MESH, "float32", channels=3)

    def wrong(turn: Any) -> Any:
        first = turn.steps[0]
        bad = isinstance(first, VectorInstruction) and first.function == "updated"
        return Round((replace(first, out="state"),)) if bad else turn

    bad = Program(program.rows, program.cols, program.slots, (tuple(wrong(turn) for turn in program.strands[0]),))
    out = run_program(bad, {}, scatter_operands({name: v[name][None] for name in recipe.loads}, recipe, block, MESH))
    state, _ = told(rule, v, v["state"])
    assert gather_result({"next/last": out["next/last"]}, "next", rows) != pytest.approx(state, abs=1e-5)


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 12, 37])
@pytest.mark.parametrize("rule", RULE_OPERATIONS)
def test_the_closed_form_counts_what_is_played(rule: str, rows: int, resident: bool) -> None:
    recipe, block = update_kernel(rule, KEYS, resident=resident), RowBlock(-(-rows // 6) if resident else 2, VALUES)
    program = build_program(recipe, rows, block, MESH, channels=3)
    memory = mesh_channels("south", 3, program.rows, 3, 100.0, 1.0)
    played = timed(program, CYCLES, engines=ENGINES, memory=memory).activity
    closed = cost(recipe, rows, block, MESH, CYCLES, ENGINES, ColumnMemory(3, 100.0, 1.0, 1.0), "float16").activity
    for count in COUNTS:
        assert getattr(closed, count) == pytest.approx(getattr(played, count)), count
