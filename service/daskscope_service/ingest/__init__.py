"""Receives data: validates it, queues it, and writes it in one writer thread."""
