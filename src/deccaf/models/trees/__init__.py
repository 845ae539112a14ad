"""LightGBM: fitting, checking the text of a model, and scoring all experts in one pass."""
