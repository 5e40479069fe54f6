"""Removes links whose addresses are too long for proxies from pages.

Names that users chose may stand in an address, where a character can take twelve. nginx refuses a
request line of more than 8 KiB (414), so such a link would lead nowhere.
"""

from __future__ import annotations

import re

from flask import Flask, Response

#: An address of more than 8,000 characters. Pictures in reports are no addresses.
_TOO_LONG = re.compile(rb'href="(?!data:)[^"]{8001,}"')


def install(app: Flask) -> None:
    """Remove such links from the pages of ``app``; their words stay."""
    app.after_request(_without_long_links)


def _without_long_links(response: Response) -> Response:
    if response.mimetype == "text/html" and not response.is_streamed:
        content = response.get_data()
        short = _TOO_LONG.sub(b"", content)
        if len(short) < len(content):
            response.set_data(short)
    return response
