"""Simulators that are other programs or services by HTTP, as fidelities of designs."""
