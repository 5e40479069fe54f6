"""What Alembic runs: ``env.py``, and ``versions`` with one file per revision of the schema."""
