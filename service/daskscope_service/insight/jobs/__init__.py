"""Jobs: which runs are the same work, when a job changed, and how two of its runs differ."""
