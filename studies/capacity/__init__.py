"""How many requests a chip serves within bounds, and whether the quick answer is that of trying everything."""
