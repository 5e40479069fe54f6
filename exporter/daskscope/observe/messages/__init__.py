"""Events of Dask's event log, log records, and messages to the scheduler."""
