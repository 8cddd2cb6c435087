"""Simulators that are other programs: a process of their own, or a service by HTTP, as a fidelity of designs."""
