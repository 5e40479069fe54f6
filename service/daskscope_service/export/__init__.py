"""Exports the stored data to files."""
