"""A gallery in a table of PostgreSQL with pgvector; extra `postgres`."""

from nearsure.extras import require

for module in ("psycopg", "psycopg_pool"):
    require(module, extra="postgres", purpose="PostgresEngine")

from nearsure.engines.postgres.engine import PostgresEngine  # noqa: E402 - after the check above

__all__ = ["PostgresEngine"]
