"""Whether a line of code waits for something, judged by its text and its file."""

from __future__ import annotations

import re

from daskscope_service.insight.flame import Line

#: Calls that wait: for a clock, a lock, a process, a socket.
_CALLS = re.compile(
    r"\b(sleep|recv\w*|sendall|select|poll|epoll|wait\w*|acquire|connect|accept|getaddrinfo|"
    r"urlopen|readinto|communicate|result|fetch\w*|requests\.\w+)\s*\("
)

#: Files whose code mostly waits.
_FILES = re.compile(
    r"[/\\](socket|ssl|selectors|threading|subprocess|http[/\\]client)\.py$"
    r"|[/\\](urllib3|requests|httpx|aiohttp|botocore|s3fs|gcsfs|adlfs|fsspec|psycopg\w*)[/\\]"
)


def waits(line: Line) -> bool | None:
    """Return whether ``line`` waits; None where its text was not sent and its file does not say."""
    if _FILES.search(line.file):
        return True
    return None if line.text is None else bool(_CALLS.search(line.text))
