"""Rows as the API and the pages show them: one read function for both."""
