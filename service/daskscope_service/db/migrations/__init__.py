"""The files for Alembic: ``env.py``, and ``versions`` with one file per revision of the schema."""
