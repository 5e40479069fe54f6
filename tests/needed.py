"""Packages of others that only some tests need, on machines that may lack them."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import pytest


def needed(module: str, why: str) -> Any:
    """Return a module that a whole file of tests needs. Where it cannot be had they are skipped,
    and say ``why``; but not in continuous integration, whose environment has it all.

    ``./dev matrix`` has an environment with nothing but what the exporter itself needs.
    """
    if "CI" in os.environ and ".matrix" not in sys.prefix.split(os.sep):
        return importlib.import_module(module)
    return pytest.importorskip(module, reason=why)
