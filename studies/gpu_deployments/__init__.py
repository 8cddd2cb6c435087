"""Whole models on GPUs as they were measured, by kernels that were fitted by themselves."""
