"""Kernels by this project's fidelities and by other simulators, from exports of the same programs."""
