"""``daskscope demo``: runs the service, a Dask cluster and real work on it on this machine."""

from __future__ import annotations

from daskscope_service.demo.command import run

__all__ = ["run"]
