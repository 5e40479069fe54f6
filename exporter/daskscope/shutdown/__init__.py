"""Shutdowns of the cluster: asked for, announced, called off or carried out."""
