"""What a chip costs in silicon: area by part, energy, supply of a clock, money, and what it cannot be made as."""
