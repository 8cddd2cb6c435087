"""What a chip costs in silicon."""
