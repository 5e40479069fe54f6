"""Events of the event log of Dask, log records, and messages as they arrive."""
