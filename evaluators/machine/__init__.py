"""Parts of a machine that programs occupy, by a formula or played: engines, memories, networks; `machine.py` builds them."""
