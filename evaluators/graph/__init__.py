"""Operators of one LLM step, before they are divided between devices."""
