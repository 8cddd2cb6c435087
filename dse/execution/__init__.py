"""Execution of a study: ask/tell, workers, screens, and verification at a higher fidelity."""
