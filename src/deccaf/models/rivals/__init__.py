"""Other ways to learn whom to ask, from other papers, on the same tables: for comparisons."""
