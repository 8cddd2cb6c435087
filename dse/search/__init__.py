"""Search: samplers, surrogate models of objectives, Pareto fronts and stop rules."""
