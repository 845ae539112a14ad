"""The database: connections, tables, migrations, the writer, idempotency, keys."""
