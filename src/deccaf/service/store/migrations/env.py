"""Alembic's way in: deccaf hands over an open connection."""

from __future__ import annotations

from alembic import context

from deccaf.service.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()  # in the transaction of whoever asked
