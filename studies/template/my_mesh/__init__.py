"""Parts for mesh-dse of our own: a kernel and a scheduling policy, found by the entry points in pyproject.toml."""
