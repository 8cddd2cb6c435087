"""Mutated inputs of every kind that strangers give: each is answered, or refused in one line, and nothing of it runs."""
