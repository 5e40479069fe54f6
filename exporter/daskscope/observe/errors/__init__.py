"""Exceptions: their types, their causes, and the tasks that failed."""
