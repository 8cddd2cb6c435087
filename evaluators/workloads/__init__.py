"""Evaluators of each type of workload: models, single kernels and serving loads."""
