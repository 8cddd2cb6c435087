"""The reference: everything that a user can name, from the records and presets that hold it.

`catalogue` lists it, `write` makes the pages of `docs/reference` of it.
"""
