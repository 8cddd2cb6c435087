"""Layouts: from operators of a model to calls on a machine.

A layout decides what runs where, what moves between devices or cores, and what each of them stores.
"""
