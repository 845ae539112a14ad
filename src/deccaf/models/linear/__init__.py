"""Logistic models: features as columns of numbers, the hierarchical model, its Newton steps."""
