"""Parts of ``tools/fit_world.py``: bins of the features, their chain of models, the fraud model."""
