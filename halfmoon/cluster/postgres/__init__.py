"""The database of a cluster in PostgreSQL, versions 15 to 18 (asyncpg)."""
