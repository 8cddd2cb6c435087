"""Kernels: one file per algorithm, with its analytical `cost` and its program (`build_program`)."""
