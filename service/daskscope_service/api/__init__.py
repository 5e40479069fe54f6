"""The HTTP API under ``/api/v1`` and the OTLP receiver's routes."""
