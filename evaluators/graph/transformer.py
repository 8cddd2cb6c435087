"""A model and a step as operators: what is computed, before anyone divides it between devices.

Not said here: how long anything takes, and who waits for whom across devices.
"""

from dse.evaluators.graph.experts import touched
from dse.evaluators.graph.mixing import mixing
from dse.evaluators.graph.operators import FEEDING, MIXING, Dim, Elementwise, MatMul, Operator, Part
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.words import GATE, TANH, norm
from dse.space.layers import MOE, Layer, layers
from dse.space.model import Experts, Model
from dse.space.parameters import drafting, shared_width


def transformer(model: Model, step: Step) -> tuple[Part, ...]:
    """The parts of one step: embedding, each kind of mixing and of FFN once, and head; `line` has the order of layers.

    The head runs on the rows that get a new token. Sampling is left out: it moves a few bytes a request. A module that predicts
    tokens (MTP) joins the last hidden state and the next token's embedding, and is one layer and one head more [deepseek2024].
    """
    h, m, found, guesses = Dim(model.hidden), step.tokens, layers(model), step.guesses
    parts = [Part("embedding", m, (Elementwise("embedding", (), m, h, 0, 2),), 1)]
    drafted = [layer.name for layer in drafting(model)] if guesses else []
    for layer in found.mixings:
        times = layer.times + guesses * (layer.name in drafted)
        near, far = step.at(layer.reach), step.at(layer.indexed)
        parts.append(Part(layer.name, m, mixing(layer.of, near, far), times, MIXING, layer.of, layer.reach, layer.of.parallel))
    for layer in found.ffns:
        times = layer.times + guesses * (layer.name in drafted)
        parts.append(Part(layer.name, m, _feeding(layer, step), times, FEEDING, layer.of))
    if guesses:
        parts.append(Part("mtp", m, _predicted(model, step), guesses))
    parts.append(Part("head", step.requests, _head(model, step), 1))
    return tuple(parts)


def line(model: Model, step: Step) -> tuple[str, ...]:
    """Parts of a step in order, from the embedding to the head, modules that predict tokens before it."""
    drafted = tuple(layer.name for layer in drafting(model)) if step.guesses else ()
    return ("embedding", *layers(model).names, *(drafted + ("mtp",) * bool(drafted)) * step.guesses, "head")


def _head(model: Model, step: Step) -> tuple[Operator, ...]:
    rows, columns = step.requests, Dim(model.vocab, split=True)
    found: tuple[Operator, ...] = (
        norm("final_norm", (), rows, Dim(model.hidden)),
        MatMul("head", ("final_norm",), rows, Dim(model.hidden), columns),
    )
    return found + ((Elementwise("head_tanh", ("head",), rows, columns, *TANH),) if model.head_softcap else ())


def _predicted(model: Model, step: Step) -> tuple[Operator, ...]:
    """Of a module that predicts tokens what its layer is not: two hidden states made one, and the model's own head after it."""
    m, rows, h = step.tokens, step.requests, Dim(model.hidden)
    return (
        norm("mtp_norm", (), m, h),
        norm("mtp_embedding_norm", (), m, h),
        MatMul("mtp_proj", ("mtp_norm", "mtp_embedding_norm"), m, Dim(2 * model.hidden), h),
        norm("mtp_final_norm", ("mtp_proj",), rows, h),
        MatMul("mtp_head", ("mtp_final_norm",), rows, h, Dim(model.vocab, split=True), stored=0.0),
    )


def _feeding(layer: Layer, step: Step) -> tuple[Operator, ...]:
    """An FFN with its norm; beside attention it has the norm of that."""
    of, h = layer.of, Dim(layer.of.hidden)
    first: tuple[Operator, ...] = () if of.parallel else (norm("ffn_norm", (), step.tokens, h),)
    needs = ("ffn_norm",) if first else ()
    found: list[Operator]
    if layer.name.startswith(MOE):
        assert of.experts is not None
        found = _moe(of, of.experts, step, needs)
    else:
        found = _ffn(of, step, prefix="", width=of.ffn_intermediate, needs=needs)
    after = [norm("ffn_post_norm", (found[-1].name,), step.tokens, h)] if of.post_norms else []
    return (*first, *found, *after)


def _ffn(model: Model, step: Step, *, prefix: str, width: int, needs: tuple[str, ...]) -> list[Operator]:
    m, h, f = step.tokens, Dim(model.hidden), Dim(width, split=True)
    up = MatMul(f"{prefix}up", needs, m, h, f)
    gate = [MatMul(f"{prefix}gate", needs, m, h, f)] if model.gated_ffn else []
    inputs = tuple(operator.name for operator in (*gate, up))
    activation = Elementwise(f"{prefix}activation", inputs, m, f, *GATE)
    return [*gate, up, activation, MatMul(f"{prefix}down", (activation.name,), m, f, h)]


def _moe(model: Model, experts: Experts, step: Step, needs: tuple[str, ...]) -> list[Operator]:
    m, outer, h, f = step.tokens, Dim(model.hidden), Dim(experts.latent or model.hidden), Dim(experts.intermediate, split=True)
    rows = m * experts.top_k
    read, stored = touched(experts, m), float(experts.count)
    operators: list[Operator] = [MatMul("router", needs, m, outer, Dim(experts.count))]
    fed: tuple[str, ...] = ("router",)
    if experts.latent:
        operators.append(MatMul("latent_down", needs, m, outer, h))
        fed = ("router", "latent_down")
    gate = [MatMul("experts_gate", fed, rows, h, f, read, stored)] if model.gated_ffn else []
    up = MatMul("experts_up", fed, rows, h, f, read, stored)
    operators += [
        *gate,
        up,
        Elementwise("experts_activation", tuple(one.name for one in (*gate, up)), rows, f, *GATE),
        MatMul("experts_down", ("experts_activation",), rows, f, h, read, stored),
    ]
    if experts.latent:
        operators.append(MatMul("latent_up", ("experts_down",), m, h, outer))
    if experts.shared:
        width = experts.shared * shared_width(experts)
        operators += _ffn(model, step, prefix="shared_", width=width, needs=needs)
    if experts.shared and experts.shared_gate:
        operators.append(MatMul("shared_score", needs, m, outer, Dim(1)))
    return operators
