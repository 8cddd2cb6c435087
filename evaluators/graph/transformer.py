"""A model and a step as operators, before they are divided between devices.

The operators have no times and no synchronisation between devices.
"""

from dse.evaluators.graph.described_operators import described_operators
from dse.evaluators.graph.elementwise_costs import GATE_COST, TANH_COST, norm_operator
from dse.evaluators.graph.expert_loads import experts_touched
from dse.evaluators.graph.operators import FEEDING, MIXING, ElementwiseOp, MatMulOp, MatrixDim, Operator, Segment
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.token_mixing import mixing_operators
from dse.space.layers import MOE, LayerGroup, layers
from dse.space.model import ExpertLayers, Model
from dse.space.parameter_counts import mtp_layers, shared_expert_width

END_SEGMENTS = ("embedding", "head")
"""Segments that are in no layer, and that a step has once."""


def transformer_segments(model: Model, step: StepCounts) -> tuple[Segment, ...]:
    """Segments of one step: embedding, each kind of mixing and FFN once, and head.

    The head runs on the rows that get a new token. Sampling is left out: it moves a few bytes per request. A
    multi-token prediction module joins the last hidden state and the next token's embedding, and adds one layer and
    one head [deepseek2024].
    """
    h, m, found_layers, guesses = MatrixDim(model.hidden), step.tokens, layers(model), step.guesses
    parts = [Segment("embedding", m, (ElementwiseOp("embedding", (), m, h, 0, 2),), 1)]
    drafted = [layer.name for layer in mtp_layers(model)] if guesses else []
    for layer in found_layers.mixings:
        times = layer.times + guesses * (layer.name in drafted)
        near, far = step.at_reach(layer.reach), step.at_reach(layer.indexed)
        described = layer.of.operators
        parts.append(
            Segment(
                layer.name,
                m,
                described_operators(described, step, found_layers.reaches)
                if described
                else mixing_operators(layer.of, near, far),
                times,
                MIXING,
                layer.of,
                layer.reach,
                layer.indexed,
                layer.of.parallel,
            )
        )
    for layer in found_layers.ffns:
        times = layer.times + guesses * (layer.name in drafted)
        parts.append(Segment(layer.name, m, _feeding(layer, step), times, FEEDING, layer.of))
    if guesses:
        parts.append(Segment("mtp", m, _predicted(model, step), guesses))
    parts.append(Segment("head", step.requests, _head(model, step), 1))
    return tuple(parts)


def segment_order(model: Model, step: StepCounts) -> tuple[str, ...]:
    """Names of the segments of a step in order, from the embedding to the head."""
    drafted = tuple(layer.name for layer in mtp_layers(model)) if step.guesses else ()
    return ("embedding", *layers(model).names, *(drafted + ("mtp",) * bool(drafted)) * step.guesses, "head")


def _head(model: Model, step: StepCounts) -> tuple[Operator, ...]:
    rows, columns = step.requests, MatrixDim(model.vocab, split=True)
    operators: tuple[Operator, ...] = (
        norm_operator("final_norm", (), rows, MatrixDim(model.hidden)),
        MatMulOp("head", ("final_norm",), rows, MatrixDim(model.hidden), columns),
    )
    return operators + ((ElementwiseOp("head_tanh", ("head",), rows, columns, *TANH_COST),) if model.head_softcap else ())


def _predicted(model: Model, step: StepCounts) -> tuple[Operator, ...]:
    """Of a module that predicts tokens what its layer is not: two hidden states made one, and the model's own head after it."""
    m, rows, h = step.tokens, step.requests, MatrixDim(model.hidden)
    return (
        norm_operator("mtp_norm", (), m, h),
        norm_operator("mtp_embedding_norm", (), m, h),
        MatMulOp("mtp_proj", ("mtp_norm", "mtp_embedding_norm"), m, MatrixDim(2 * model.hidden), h),
        norm_operator("mtp_final_norm", ("mtp_proj",), rows, h),
        MatMulOp("mtp_head", ("mtp_final_norm",), rows, h, MatrixDim(model.vocab, split=True), stored=0.0),
    )


def _feeding(layer: LayerGroup, step: StepCounts) -> tuple[Operator, ...]:
    """An FFN with its norm; in parallel with attention the norm is shared."""
    model, h = layer.of, MatrixDim(layer.of.hidden)
    first: tuple[Operator, ...] = () if model.parallel else (norm_operator("ffn_norm", (), step.tokens, h),)
    needs = ("ffn_norm",) if first else ()
    operators: list[Operator]
    if layer.name.startswith(MOE):
        assert model.experts is not None
        operators = _moe(model, model.experts, step, needs)
    else:
        operators = _ffn(model, step, prefix="", width=model.ffn_intermediate, needs=needs)
    after = [norm_operator("ffn_post_norm", (operators[-1].name,), step.tokens, h)] if model.post_norms else []
    return (*first, *operators, *after)


def _ffn(model: Model, step: StepCounts, *, prefix: str, width: int, needs: tuple[str, ...]) -> list[Operator]:
    m, h, f = step.tokens, MatrixDim(model.hidden), MatrixDim(width, split=True)
    up = MatMulOp(f"{prefix}up", needs, m, h, f)
    gate = [MatMulOp(f"{prefix}gate", needs, m, h, f)] if model.gated_ffn else []
    inputs = tuple(operator.name for operator in (*gate, up))
    activation = ElementwiseOp(f"{prefix}activation", inputs, m, f, *GATE_COST)
    return [*gate, up, activation, MatMulOp(f"{prefix}down", (activation.name,), m, f, h)]


def _moe(model: Model, experts: ExpertLayers, step: StepCounts, needs: tuple[str, ...]) -> list[Operator]:
    m, outer, h, f = (
        step.tokens,
        MatrixDim(model.hidden),
        MatrixDim(experts.latent or model.hidden),
        MatrixDim(experts.intermediate, split=True),
    )
    rows = m * experts.top_k
    read, stored = experts_touched(experts, m), float(experts.count)
    operators: list[Operator] = [MatMulOp("router", needs, m, outer, MatrixDim(experts.count))]
    fed: tuple[str, ...] = ("router",)
    if experts.latent:
        operators.append(MatMulOp("latent_down", needs, m, outer, h))
        fed = ("router", "latent_down")
    unequal = experts.load != "even"
    gate = [MatMulOp("experts_gate", fed, rows, h, f, read, stored, unequal=unequal)] if model.gated_ffn else []
    up = MatMulOp("experts_up", fed, rows, h, f, read, stored, unequal=unequal)
    operators += [
        *gate,
        up,
        ElementwiseOp("experts_activation", tuple(operator.name for operator in (*gate, up)), rows, f, *GATE_COST),
        MatMulOp("experts_down", ("experts_activation",), rows, f, h, read, stored, unequal=unequal),
    ]
    if experts.latent:
        operators.append(MatMulOp("latent_up", ("experts_down",), m, h, outer))
    if experts.shared:
        width = experts.shared * shared_expert_width(experts)
        operators += _ffn(model, step, prefix="shared_", width=width, needs=needs)
    if experts.shared and experts.shared_gate:
        operators.append(MatMulOp("shared_score", needs, m, outer, MatrixDim(1)))
    return operators
