"""Parts of a machine that programs occupy: engines, memories, networks.

Each part has formulas or a simulator; `machine.py` builds a machine from a chip.
"""
