"""The database: tables, engine."""
