"""Kinds of tasks, for the module that makes them and the one that runs them."""

NOTE, WORK, BLOCK, PACKET = range(4)
"""Kinds of tasks: a time; work of an engine; a block that a memory channel serves; a packet that a router is given."""
