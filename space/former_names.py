"""Former names of modules, functions and classes, which external packages may use for one release.

A package that adds options by entry points may have been written with the names of PHYSICS 31 and before. Where an entry point
is loaded, former names are answered with the present objects, and one line on standard error says which names to replace.
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SAID = "DSE_FORMER_NAMES_SAID"
"""Environment variable that is set once a process tree has printed its line."""

MODULES_TEXT = """
dse.evaluators.kernels.table dse.evaluators.kernels.tabulated_counts
    MOST_BITS:MAX_TABLE_BITS SMALL:MAX_SMALL_VALUE tabulated:tabulate
dse.evaluators.kernels.cost dse.evaluators.kernels.kernel_cost
    Cost:KernelCost
dse.evaluators.kernels.gemm.tiling
    MOST_CHUNKS:MAX_CHUNKS Mesh:CoreMesh Shape:GemmShape all_cores:core_indices blocks:matrix_blocks
    joined:join_blocks square:near_square
dse.evaluators.kernels.gemm
    NEEDS:REQUIRED_FUNCTIONS RIVALS:GEMM_CANDIDATES gemm:find_gemm
dse.evaluators.kernels.gemv
    NEEDS:REQUIRED_FUNCTIONS RIVALS:GEMV_CANDIDATES copies:extra_deliveries gemv:find_gemv
dse.evaluators.kernels.gemv.partial dse.evaluators.kernels.gemv.local_product
    columns:column_groups copies:extra_deliveries cost:gemv_cost place:scatter_operands product:local_product
    program:gemv_program reduced:column_reduction result:gather_result slots:buffers spread:column_broadcast
    spread_seconds:broadcast_seconds
dse.evaluators.kernels.gemv.ring
    at_once:concurrent_paths line:line_seconds moved:message_counts paths:routing_paths reduction:reduction_rounds
    root:root_row stages:software_stages steps:build_program
dse.evaluators.kernels.gemv.ktree
    at_once:concurrent_paths groups:phase_groups line:line_seconds moved:message_counts paths:routing_paths
    reduction:reduction_rounds root:root_row stages:software_stages steps:build_program
dse.evaluators.kernels.gemv.pipeline
    at_once:concurrent_paths line:line_seconds moved:message_counts paths:routing_paths reduction:reduction_rounds
    root:root_row stages:software_stages steps:build_program
dse.evaluators.kernels.gemm.cannon
    LEAST:MIN_SIDE WAIT:BARRIER at_once:concurrent_paths paths:routing_paths steps:build_program
dse.evaluators.kernels.gemm.summa
    LEAST:MIN_SIDE WAIT:BARRIER at_once:concurrent_paths paths:routing_paths place:scatter_operands
    products:local_product_count result:gather_result slots:buffers steps:build_program
dse.evaluators.kernels.gemm.meshgemm
    LEAST:MIN_SIDE WAIT:BARRIER at_once:concurrent_paths interleave:ring_neighbours interleaved:interleaved_order
    paths:routing_paths steps:build_program
dse.evaluators.kernels.collective
    LIBRARY:LIBRARY_OPTION allreduce:find_allreduce collective:find_collective moved:allreduce_bytes
    ports:ports_needed seconds:allreduce_seconds
dse.evaluators.kernels.collective.ring dse.evaluators.kernels.collective.ring_allreduce
    ports:ports_needed rounds:ring_rounds steps:build_program
dse.evaluators.kernels.collective.team dse.evaluators.kernels.collective.core_groups
    Chain:MessageChain Groups:MeshGroups Team:CoreGroup Tile:BufferRows activity:collective_activity
    checked:check_groups combined:check_reduction cost:collective_cost held:multicast_send_time kept:find_longest_chains
    leading:multicast_lead_time members:group_members parts:pattern_stages program:collective_program
    seconds:collective_seconds slots:collective_buffers stepped:group_rounds teams:groups_of_mesh
dse.evaluators.kernels.attention
    attention:find_dataflow
dse.evaluators.kernels.attention.dataflow
    Ahead:PrefetchInstructions BOTH:STRAND_PREFIXES PARTIAL:PARTIAL_OUTPUTS Part:ProgramPart in_turns:tiling_of_pairs
    kept:strand_buffers name:strand_prefix pairs:is_paired steps:attention_program
dse.evaluators.kernels.attention.shape dse.evaluators.kernels.attention.attention_shape
    AS_OTHERS:SAME_AS_ACTIVATIONS Cached:KvStorage Cut:BlockCounts Heads:AttentionShape Tiling:AttentionTiling
    cut:block_counts selected:per_query_attention slots:attention_buffers
dse.evaluators.program.rounds dse.evaluators.program.kernel_ir
    COMBINE:COMBINE_MODES Cores:CoreIndex EXPANSIONS:DEQUANTIZE_FUNCTIONS Function:VectorFunction Load:LoadInstruction
    Multicast:MulticastInstruction Multiply:MultiplyInstruction Reduce:ReduceInstruction Send:SendInstruction
    Slot:Buffer Step:Instruction Store:StoreInstruction UNSEEN:MASKED_SCORE VIA:TRANSPORTS Vector:VectorInstruction
    WAIT:BARRIERS expansion:dequantize_instructions in_place:is_in_place reads:buffers_read rounds_of:iterate_rounds
    writes:buffers_written
dse.evaluators.program.routes
    distance:hop_distance paths:routing_paths signed:signed_hops tree:multicast_tree way:route_cores
dse.evaluators.machine.fabric dse.evaluators.machine.mesh_fabric
    Fabric:MeshFabric summing:with_vector_reduction
dse.evaluators.machine.link dse.evaluators.machine.device_links
    Library:CollectiveLibrary Links:DeviceGroupLinks Ports:DiePorts seconds:transfer_seconds spread:split_into_nodes
dse.evaluators.machine.engine dse.evaluators.machine.compute_engines
    ACCUMULATED:ACCUMULATOR_BYTES Engines:TileEngines elements:pipelined_element_cycles engines:tile_engines
    systolic:systolic_cycles
dse.evaluators.readers.numeric dse.testing.functional_simulator
    LONG:LONG_PROGRAM Slices:BufferSlices in_double:in_double_precision play:run_program
dse.evaluators.serving.policy dse.evaluators.serving.scheduling_policy
    Policy:SchedulingPolicy most_prompts:max_prompt_tokens policies:policies_with_batch policy:make_policy
    rules:pool_policies
dse.evaluators.account.outside dse.evaluators.accounting.external_evaluators
    Evaluator:ExternalEvaluator LONGEST:MAX_NAME_LENGTH answering:matching_evaluators explained:external_breakdown
    judged:evaluate_external words:external_fidelities
dse.evaluators.account.metrics dse.evaluators.accounting.metrics
    Judged:CaseOutcomes MADE:DERIVED_METRICS Work:TokenCounts energies:rated_energies extend:load_metric_plugins
    metric:find_metric of_batch:batch_metrics per_area:area_metrics rated:rated_power with_made:add_derived_metrics
    with_needs:add_input_metrics
dse.space.design
    digest:key_of_leaves entry:key_line hashed:hash_lines key:design_key stacked:stack_designs
dse.space.workload
    ALONG:GROUP_AXES Asked:WorkloadCase Attention:AttentionCase COMBINE:REDUCTIONS Case:BatchCase Class:SloClass
    Collective:CollectiveCase EXCHANGES:DIE_EXCHANGES Load:ServingLoad Mixture:ExpertsCase Operation:ElementwiseCase
    PATTERNS:TILE_PATTERNS PRODUCTS:PRODUCT_KINDS Product:ProductCase STREAMS:STREAM_PATTERNS Stream:MemoryStreamCase
    TO_EXPERTS:EXPERT_EXCHANGES TRAFFIC:TRAFFIC_PATTERNS Traffic:NocTrafficCase by_model:cases_by_model
    grouped:group_lengths stretches:decode_segments written:product_text
dse.space.fields
    EXACT:MAX_EXACT_INTEGER at:leaf_at checked:check_leaf equal:has_equal_leaves flag:boolean_field
    leaves:iterate_leaves matching:match_addresses_or_none named:match_addresses part:part_field
    quantity:quantity_field record:record_class refused:refused_field replaced:replace_leaves spec_at:field_at
    table:table_field told:fingerprint whole:integer_field word:option_field have_equal_leaves:has_equal_leaves
dse.space.errors
    chosen:choose_option nearest:suggest_nearest
dse.space.elementwise dse.space.array_math
    TABLES:MAX_DISTINCT_VALUES at_least:floor_keeping_scalar at_most:cap_keeping_scalar by_word:select_by_option
    column:as_column distinct:distinct_values even:even_share hashed:is_hashable in_line:convert_to_slice
    lowest:argmin_lexicographic of_each:map_distinct one_value:collapse_if_equal option:option_index
    plain:squeeze_cases total:sum_nonzero within:cap_if_exceeded
dse.space.units
    SCALED:PREFIXED_UNITS USUAL:KNOWN_UNITS display:choose_display_unit factor:conversion_factor parse:parse_quantity
    quantity:parse_with_dimension show:format_quantity told:unit_text
dse.space.chip
    Boxes:ScaleOutNetwork Cache:SharedCache Core:PooledCore D2d:DieLinks Dies:DieGrid Hbm:HighBandwidthMemory
    MainMemory:TileMemory Network:DeviceLinks Noc:MeshNoc Nodes:NodeNetwork PLACES:CHANNEL_SIDES
    PRODUCTS:PRODUCT_ENGINES RELOADS:ARRAY_RELOADS box_sides:node_grid decoding:decode_only_chip
    memory_channels:channel_count memory_of:main_memory_bytes memory_of_core:memory_bytes_per_core
dse.space.mapping
    ADMIT:ADMISSION_RULES CollectivePlan:TileCollectivePlan DiesPlan:TileDiesPlan EXPERTS:EXPERT_PARTITIONS
    ExpertsPlan:ExpertPlacementPlan FlatPlan:WholeChipPlan HEADS:UNEVEN_KV_HEADS MeshPlan:RegionPlan
    ON_MESH:MESH_GEMMS Plan:TensorParallelPlan PoolPlan:ServingPipelinePlan PooledPlan:SharedCacheDiesPlan
    Precision:FormatPlan ProductPlan:MeshProductPlan REUSE:PREFIX_STORES STAGES:STAGE_CUTS SUMS:GEMV_SUM_LOCATIONS
    Serving:ServingPlan SplitPlan:MultiDiePlan StreamPlan:MemoryStreamPlan SummaPlan:TileGemmPlan
    SumsPlan:ReductionPlan TRANSFER:KV_TRANSFERS TilePlan:PipelinePlan TileServing:PipelineServingPlan
    WITHIN:IN_DIE_COLLECTIVES
dse.space.model
    Compressed:CompressedAttention Experts:ExpertLayers Indexer:SparseIndexer Kind:LayerKind LOADS:EXPERT_LOADS
    Latent:LatentAttention RULES:RECURRENCE_RULES Recurrence:RecurrentMixing
"""
"""Former module and, where it moved, the present one; below, former names with the present ones."""

FUNCTIONS_TEXT = """
dse.gemm
    steps:build_program place:scatter_operands result:gather_result slots:buffers products:local_product_count
    paths:routing_paths at_once:concurrent_paths LEAST:MIN_SIDE
dse.gemv
    steps:build_program place:scatter_operands result:gather_result slots:buffers paths:routing_paths
    at_once:concurrent_paths stages:software_stages line:line_seconds moved:message_counts reduction:reduction_rounds
    copies:extra_deliveries
dse.allreduce
    ports:ports_needed steps:build_program
"""
"""By group of entry points, former names of what an option has."""

used: dict[str, str] = {}
"""Former names that were used in this process, with the present ones."""


def install_former_names() -> None:
    """Redirect imports of former module and object names to the present ones, in this process."""
    if any(isinstance(finder, _FormerModules) for finder in sys.meta_path):
        return
    tables = {former.split()[0]: (former.split()[-1], names) for former, names in _sections(MODULES_TEXT).items()}
    sys.meta_path.append(_FormerModules({former: table for former, table in tables.items() if former != table[0]}))
    for former, (present, names) in tables.items():
        if former == present:
            module = import_module(present)
            module.__dict__["__getattr__"] = _answer(former, module, names)


def with_former_functions(group: str, option: Any) -> Any:
    """Add to an external option the present names of functions that it defines by former names.

    Args:
        group: of entry points, as ``dse.gemm``.
        option: as the package has it; it is changed.
    """
    for former, present in _sections(FUNCTIONS_TEXT).get(group, {}).items():
        if not hasattr(option, present) and hasattr(option, former):
            setattr(option, present, getattr(option, former))
            used[former] = present
    return option


def say_former_names(package: str) -> None:
    """Print once per process tree which former names a package uses, with the present ones."""
    if used and SAID not in os.environ:
        os.environ[SAID] = "1"
        pairs = ", ".join(f"{former} is now {present}" for former, present in used.items())
        print(f"dse: note: {package}: former names work for one release: {pairs}", file=sys.stderr)


class _FormerModules(MetaPathFinder, Loader):
    """Imports of modules that have moved, each answered by a module that has former and present names."""

    def __init__(self, moved: Mapping[str, tuple[str, Mapping[str, str]]]) -> None:
        self._moved = moved

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname in self._moved:
            return ModuleSpec(fullname, self)
        package = any(name.startswith(f"{fullname}.") for name in self._moved)
        return ModuleSpec(fullname, self, is_package=True) if package else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        if spec.name not in self._moved:  # a folder that has moved
            return module
        present, names = self._moved[spec.name]
        module.__dict__["__getattr__"] = _answer(spec.name, import_module(present), names)
        used[spec.name] = present
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is executed: the present module has run."""


def _answer(former: str, module: ModuleType, names: Mapping[str, str]) -> Any:
    """The module-level ``__getattr__`` that answers to former names."""

    def get_present(name: str) -> Any:
        if name in names:
            used[f"{former}.{name}"] = names[name]
            return getattr(module, names[name])
        if former != module.__name__ and hasattr(module, name):
            return getattr(module, name)
        raise AttributeError(f"module {former!r} has no attribute {name!r}")

    return get_present


def _sections(text: str) -> dict[str, dict[str, str]]:
    r"""Indented pairs ``former:present`` by the line above them.

    >>> _sections("a b\n    x:y z:w\nc")
    {'a b': {'x': 'y', 'z': 'w'}, 'c': {}}
    """
    sections: dict[str, dict[str, str]] = {}
    for line in text.strip().splitlines():
        if line.startswith(" "):
            sections[next(reversed(sections))].update(dict(pair.split(":") for pair in line.split()))
        else:
            sections[line] = {}
    return sections
