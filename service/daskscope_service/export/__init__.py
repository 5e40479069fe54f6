"""Writes the stored data to files."""
