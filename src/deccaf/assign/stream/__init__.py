"""Cases that cannot wait: routed on arrival, against bid prices from a forecast of the rest of the day."""
