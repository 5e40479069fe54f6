"""Jobs, the same work over time: what makes runs one job, when it changed, and how two differ."""
