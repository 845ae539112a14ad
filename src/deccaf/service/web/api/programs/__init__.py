"""Routes about programs of others that are told what happens here."""
