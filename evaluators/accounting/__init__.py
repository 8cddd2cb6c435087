"""Sums over kernel costs: phase times, limits, energy, breakdowns and metrics, by layout."""
