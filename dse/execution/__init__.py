"""A study while it runs: what it asks, who evaluates it, screens, and verification at a higher fidelity."""
