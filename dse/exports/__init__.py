"""Programs and traffic in the input formats of other simulators."""
