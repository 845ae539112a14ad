"""Who gets a case: the model in force, prices, routing on arrival, plans."""
