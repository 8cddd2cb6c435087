"""Test support: kernels' programs and layouts' calls computed on numbers, without time.

`functional_simulator.run_program` runs a kernel's program on blocks of numbers, so that a test can compare its result with
NumPy's. `functional` does the same with the calls of a layer. `moe_layer_program` and `expert_per_core` are programs without a
cost, and `message_hops` measures a program. The package ships because tests of other packages import it; nothing else that
ships does.
"""
