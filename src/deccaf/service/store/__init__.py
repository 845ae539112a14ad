"""The database and what every floor above needs of it.

`database` connects and migrates, `tables` is the schema, `writer` runs changes, `listing` cuts lists into
pages, `fields` says which ids, names and numbers are accepted, `keys` who asks, `settings` what was
configured, `idempotency` which requests were answered before, `condition` whether the database itself is
well, `scratch` where files lie on their way through, `apsw_driver` is SQLite for SQLAlchemy. Nothing here
knows what a case or a plan means.
"""
