"""A real NVIDIA GPU, where there is one: what its driver says of it, and what keeps it busy.

Dask reads it with nvidia-ml-py, and PyTorch uses it.
"""

from __future__ import annotations

import hashlib
import importlib
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

GIB = 2**30

_MISSING = [
    what
    for what, is_here in (
        ("an NVIDIA GPU", shutil.which("nvidia-smi")),
        ("nvidia-ml-py", find_spec("pynvml")),
        ("PyTorch", find_spec("torch")),
    )
    if not is_here
]

needs_gpu = pytest.mark.skipif(bool(_MISSING), reason=f"not here: {', '.join(_MISSING)}")


def nvidia_smi(*fields: str) -> list[int]:
    """Return what the driver's own tool says of the first GPU; memory in bytes."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}"]
    output = subprocess.check_output([*command, "--format=csv,noheader,nounits"], text=True)
    return [
        int(value) * (2**20 if field.startswith("memory.") else 1)
        for field, value in zip(fields, output.split(","), strict=True)
    ]


def use_gpu(path: str) -> float:
    """Keep the GPU busy, with four GiB of its memory, until there is a file at ``path``."""
    torch: Any = importlib.import_module("torch")
    held = torch.ones(GIB, dtype=torch.float32, device="cuda")
    matrix = torch.rand(4096, 4096, device="cuda")
    while not Path(path).exists():
        for _ in range(50):
            matrix = matrix @ matrix
            matrix = matrix / matrix.norm()
        torch.cuda.synchronize()
    return float(held[0])


def use_cpu(path: str) -> str:
    """Keep a core busy, without the GPU and without the GIL, until there is a file at ``path``."""
    digest = hashlib.sha256()
    while not Path(path).exists():
        digest.update(bytes(2**24))
    return digest.hexdigest()
