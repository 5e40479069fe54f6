"""What DESIGN promises of speed and size, measured: ``./dev bench``."""
