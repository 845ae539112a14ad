"""The paper's models: its classifier, the human expertise model, one-vs-all, and their searches."""
