"""Texts and vectors as columns of numbers, learned with a model and kept in its file."""
