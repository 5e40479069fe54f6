"""Workspaces, tokens and sign-in: who may do what."""
