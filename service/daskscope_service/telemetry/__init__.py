"""Time series, spans and logs: read through one protocol, whatever stores them."""
