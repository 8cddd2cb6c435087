"""Answers about designs without a study: one design, chips side by side, capacity, and how far a mapping is from a bound."""
