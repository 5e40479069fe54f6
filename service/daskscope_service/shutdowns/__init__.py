"""Shutdowns of clusters, which people and policies request."""
