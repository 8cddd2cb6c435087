"""Functional simulation of a decoder layer: a layout's calls run on numbers.

Calls run in their order, each by its kernel's program.
"""
