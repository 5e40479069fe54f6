"""The version of the distribution, of the exporter and of the service alike."""

from __future__ import annotations

__version__ = "0.1.0"
