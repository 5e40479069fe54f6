"""Reads the forms of the pages, which are small and have no files.

``MAX_BYTES`` limits every request body, form or not, except heartbeats and OTLP, which have limits
of their own.
"""

from __future__ import annotations

from typing import IO, Any

from flask import Flask, Request, request
from werkzeug.formparser import FormDataParser

from daskscope_service.web.problems import Problem
from daskscope_service.web.template_filters import address

#: The largest body in bytes, and the largest number of fields in a form.
MAX_BYTES = 64 * 1024
MAX_FIELDS = 1000

#: The most characters of an address to which a page redirects: nginx accepts 4 KiB of headers.
MAX_LOCATION = 3_000


def install(app: Flask) -> None:
    """Limit the size of request bodies and forms of ``app``."""
    app.request_class = _Request
    app.config["MAX_CONTENT_LENGTH"] = MAX_BYTES
    app.config["MAX_FORM_MEMORY_SIZE"] = MAX_BYTES
    app.config["MAX_FORM_PARTS"] = MAX_FIELDS


class _Parser(FormDataParser):
    def parse(
        self,
        stream: IO[bytes],
        mimetype: str,
        content_length: int | None,
        options: dict[str, str] | None = None,
    ) -> Any:
        if mimetype == "multipart/form-data":
            raise Problem(
                415,
                "Content-Type multipart/form-data: no form accepts files; send it as "
                "application/x-www-form-urlencoded.",
            )
        parsed = super().parse(stream, mimetype, content_length, options)
        if sum(map(len, parsed[1].listvalues())) > MAX_FIELDS:
            raise Problem(
                413, f"The form has more than {MAX_FIELDS} fields; no form here has so many."
            )
        return parsed


class _Request(Request):
    form_data_parser_class = _Parser


def said(name: str) -> str:
    """Return a field of the form, without NUL characters and outer spaces; "" if it is missing."""
    return request.form.get(name, "").replace("\0", "").strip()


def tidied() -> str | None:
    """Return the address of this page without empty parameters; None if there are none.

    A browser sends the empty fields of a form as parameters. It is also None for an address that
    proxies may not accept in an answer's headers.
    """
    empty = {name: None for name, value in request.args.items() if not value.strip()}
    tidy = address(**empty) if empty else ""
    return tidy if 0 < len(tidy) <= MAX_LOCATION else None
