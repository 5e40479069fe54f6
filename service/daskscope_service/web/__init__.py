"""Shared parts of the HTTP API and the pages: parameters, bodies, errors, forms, downloads."""
