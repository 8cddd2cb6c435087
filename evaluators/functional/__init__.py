"""A decoder layer on numbers: the calls that a layout makes of it, walked in their order, each by its kernel's program."""
