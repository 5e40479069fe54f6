"""Imports, in the process that copies itself into workers, what Dask imports in them."""

from __future__ import annotations

import gc

from distributed.utils import get_mp_context

get_mp_context()
# A collection of a copy would touch, and so copy, the memory of all that is imported.
gc.collect()
gc.freeze()
