"""The vocabulary that kernels are written in, what a program does whoever plays it, and the ways of its messages."""
