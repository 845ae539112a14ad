"""Reading the whole record: `search` finds cases, `audit` reads the trail, `person_data` gives everything
that is kept about somebody, and `erasure` replaces their name by a pseudonym.

Whatever is long is read in the order of an index, a page at a time, each page beginning where the one before
ended (a *mark*). Where no index answers a question, a bounded stretch of rows is looked through, and whoever
asked is told how far that went.
"""
