"""Auto-tuning over many designs: fastest candidates, design groups, one-by-one evaluation."""
