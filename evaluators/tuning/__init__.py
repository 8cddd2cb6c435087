"""Many designs where they differ: choices by least time, what a structure has in common, one design after another."""
