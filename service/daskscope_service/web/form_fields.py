"""Forms: what their fields say, and those whose fields stay in the address of a page."""

from __future__ import annotations

from flask import request

from daskscope_service.web.template_filters import address


def said(name: str) -> str:
    """Return what a field of the form that was sent says, without what no text may hold."""
    return request.form.get(name, "").replace("\0", "").strip()


def tidied() -> str | None:
    """Return this page's address without the fields that were left empty; None if none was."""
    empty = {name: None for name, value in request.args.items() if not value.strip()}
    return address(**empty) if empty else None
