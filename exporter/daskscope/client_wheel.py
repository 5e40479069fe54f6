"""Makes a wheel of the installed daskscope, to be installed elsewhere without any package index.

The format is that of https://packaging.python.org/specifications/binary-distribution-format.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import io
import zipfile
from pathlib import Path

from daskscope.version import __version__

NAME = f"daskscope-{__version__}-py3-none-any.whl"

_INFO = f"daskscope-{__version__}.dist-info"
_WHEEL = "Wheel-Version: 1.0\nGenerator: daskscope\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
#: A file's time in the archive: the same package makes the same wheel.
_TIME = (2020, 1, 1, 0, 0, 0)


def own_wheel() -> bytes:
    """Return a wheel of what schedulers import: the package ``daskscope`` without the service.

    Raises
    ------
    LookupError
        The package has no metadata, or its files cannot be read where they are.
    """
    folder = Path(__file__).parent
    files = {
        f"daskscope/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    try:
        metadata = importlib.metadata.distribution("daskscope").read_text("METADATA")
    except importlib.metadata.PackageNotFoundError:
        metadata = None
    if not files or metadata is None:
        raise LookupError(
            "daskscope is not installed here as a package with files and metadata, so it "
            "cannot be packed into a wheel"
        )
    files[f"{_INFO}/METADATA"] = metadata.encode()
    files[f"{_INFO}/WHEEL"] = _WHEEL.encode()
    files[f"{_INFO}/RECORD"] = _record(files).encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            wheel.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _record(files: dict[str, bytes]) -> str:
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{_INFO}/RECORD,,", ""])
