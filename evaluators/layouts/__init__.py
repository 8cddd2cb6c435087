"""Layouts: operators of a model in, calls on a machine out; what runs where, what moves between, what is held where."""
