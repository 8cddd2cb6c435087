"""Silicon of a chip: area by part, energy, supply voltage, price and manufacturing limits."""
