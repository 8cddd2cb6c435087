"""What priced calls add up to: times of phases, limits, energy; by layout, as each holds other things where."""
