"""Shutdowns of the cluster: requested, announced, called off or carried out."""
