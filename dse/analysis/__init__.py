"""Answers about designs without a study: one design, chips side by side, capacity, optimality gap."""
