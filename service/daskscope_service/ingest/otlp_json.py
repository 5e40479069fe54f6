"""Parses OTLP in JSON into the messages of OTLP in protobuf.

This is protobuf's own mapping to JSON, except that ids are hex digits and not base64.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from daskscope_service.ingest.decoding_turns import LARGE_BYTES
from daskscope_service.web.body import depth
from daskscope_service.web.problems import Problem

#: The most objects and arrays in a body, and the most members and items: parsing them takes many
#: times their bytes of memory, and far longer than protobuf. Braces and commas in texts count, too.
#: A batch of 8,000 spans or points has half as many.
_MOST_PARTS = 250_000
_MOST_ITEMS = 1_000_000

#: How deeply objects and arrays may be nested. Protobuf accepts a hundred messages, which need
#: about 130 levels.
_MOST_DEPTH = 200

#: Fields that hold an id: 16 bytes of a trace, 8 of a span.
_IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")


#: Parsing so many of them takes a tenth of a second.
_FEW_PARTS = 8_000


def is_costly(body: bytes) -> bool:
    """Return whether ``body`` takes long to parse: such bodies are parsed one at a time."""
    return len(body) > LARGE_BYTES or sum(map(body.count, (b"{", b"[", b","))) > _FEW_PARTS


def parse(body: bytes, message: Message) -> None:
    """Read ``body`` into ``message``; ignore unknown fields.

    Raises
    ------
    Problem
        400: the body is not JSON, or not this message. 413: it has too many parts.
    """
    if body.count(b"{") + body.count(b"[") > _MOST_PARTS or body.count(b",") > _MOST_ITEMS:
        raise Problem(
            413,
            f"The body has more than {_MOST_PARTS} objects and arrays, or {_MOST_ITEMS} "
            "members; send smaller requests, or use application/x-protobuf.",
        )
    name = message.DESCRIPTOR.full_name
    if depth(body) > _MOST_DEPTH:
        raise Problem(
            400, f"The body is not a {name}: it is nested more than {_MOST_DEPTH} levels deep."
        )
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
        _read_ids(document)
        ParseDict(document, message, ignore_unknown_fields=True)
    except msgspec.ValidationError as error:
        raise Problem(400, f"The body is not a {name}: {error}.") from None
    except msgspec.DecodeError as error:
        raise Problem(400, f"The body is not JSON: {error}.") from None
    except (ParseError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Problem(400, f"The body is not a {name}: {error}.") from None


def _read_ids(value: Any) -> None:
    # Only spans, their links, log records and exemplars have ids. Users' data is in attributes, as
    # {"key": …, "value": {…}}, where no object has a member of such a name.
    if isinstance(value, dict):
        for name in _IDS:
            id = value.get(name)
            if isinstance(id, str):
                value[name] = base64.b64encode(bytes.fromhex(id)).decode()
        for inner in value.values():
            _read_ids(inner)
    elif isinstance(value, list):
        for inner in value:
            _read_ids(inner)
