"""Configuration: overrides and files, composed by Hydra, checked, and built into chips and workloads."""
