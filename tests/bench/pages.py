"""How long every page and every list of the API takes, and how large the pages are.

On two stocks at once, of which one is ten times the other, so that they are asked in turns.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from email.message import Message
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from daskscope_service.costs.usage_totals import sum_up
from daskscope_service.db import revisions
from tests.bench import stock_fill
from tests.bench.page_addresses import pages, prepare
from tests.bench.questions import Addresses, Reader, lists, make_owner
from tests.bench.stock import Stock
from tests.postgresql import PostgresServer, find_binaries
from tests.service_process import ServiceProcess

SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"

_WORKSPACE = "bench"
#: Seconds for which a database that is kept is as good as new: its "now" goes by.
_KEPT = 12 * 3600

Tell = Callable[[str], None]
#: By the kind of database and the number of clusters: ``asked``, ``bytes`` and ``disk``.
Measured = dict[str, dict[int, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of a page: as it is, as it was sent, and with all that a first visit fetches."""

    plain: int
    sent: int
    first_visit: int


@dataclass(frozen=True, slots=True)
class _Asked:
    service: ServiceProcess
    reader: Reader
    addresses: Addresses


def measure(clusters: int, *, asks: int, keep: Path | None, tell: Tell) -> Measured:
    """Ask each page and list ``asks`` times with ``clusters`` clusters, and with a tenth of them.

    Before that, once to warm up; but where ``asks`` is 1, which measures nothing, not even that.
    ``keep`` is a folder in which SQLite's filled databases stay for later runs of the day.
    """
    measured: Measured = {}
    sizes = (clusters // 10, clusters)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        where = {number: _folder(folder, keep, number) for number in sizes}
        measured[SQLITE] = _measure(SQLITE, where, dict.fromkeys(sizes, ""), asks, tell)
        binaries = find_binaries()
        if binaries is None:
            tell("no PostgreSQL server is installed (Debian's package postgresql): SQLite alone")
            return measured
        with PostgresServer(binaries, durable=True) as server:
            where = {number: folder / f"{number}" for number in sizes}
            urls = {number: server.url(server.create()) for number in sizes}
            measured[POSTGRESQL] = _measure(POSTGRESQL, where, urls, asks, tell)
    return measured


def _measure(
    kind: str, folders: dict[int, Path], urls: dict[int, str], asks: int, tell: Tell
) -> dict[int, dict[str, Any]]:
    def heard(line: str) -> None:
        tell(f"{kind}: {line}")

    measured: dict[int, dict[str, Any]] = {number: {"asked": {}, "bytes": {}} for number in folders}
    with ExitStack() as parts:
        filled = {
            number: parts.enter_context(_filled(folder, urls[number], number, heard))
            for number, folder in folders.items()
        }
        # Not before all are filled: the service ends connections that are idle for long.
        found = {number: _asked(parts, *one) for number, one in filled.items()}
        _ask(found, measured, asks, heard)
        for number, one in found.items():
            measured[number]["disk"] = stock_fill.size_of(one.service)
    return measured


def _ask(
    found: dict[int, _Asked], measured: dict[int, dict[str, Any]], asks: int, tell: Tell
) -> None:
    files: dict[int, dict[str, tuple[int, list[str]]]] = {number: {} for number in found}
    first = -1 if asks > 1 else 0
    for turn in range(first, asks):
        for what in next(iter(found.values())).addresses:
            for number in list(found)[:: 1 if turn % 2 else -1]:
                one = found[number]
                address = one.addresses[what]()
                seconds, headers, body = one.reader.ask(address)
                if turn >= 0:
                    measured[number]["asked"].setdefault(what, []).append(seconds)
                if turn == first:
                    size = _size(one.reader, address, headers, body, files[number])
                    measured[number]["bytes"][what] = size
        if turn + 1 in (1, asks) or (turn + 1) % 10 == 0:
            tell(f"asked {turn + 1} of {asks} times")


def _asked(parts: ExitStack, service: ServiceProcess, stock: Stock) -> _Asked:
    sum_up(service.engine)  # as the service does by itself, in the minute after it is started
    addresses = pages(stock, prepare(service, _WORKSPACE)) | lists(stock)
    reader = Reader(service, service.token(workspace=_WORKSPACE))
    return _Asked(service, parts.enter_context(reader), addresses)


@contextmanager
def _filled(
    folder: Path, url: str, clusters: int, tell: Tell
) -> Iterator[tuple[ServiceProcess, Stock]]:
    """Run a service on a database that is filled, or was, and is kept in ``folder``."""
    told = folder / "stock.json"
    now = int(time.time())
    kept = json.loads(told.read_text())["now"] if told.exists() else None
    stock = Stock(_WORKSPACE, clusters, kept or now)
    words = f"{stock.clusters:,} clusters, {stock.computations:,} computations, {stock.points:,}"
    # Nothing goes by its age while pages are asked for.
    options: dict[str, Any] = {"log_level": "warning", "retention_interval": 0, "silent_after": 120}
    with ServiceProcess(folder, database_url=url, **options) as service:
        if kept is None:
            tell(f"{words} points …")
            stock_fill.fill(service, stock, lambda line: tell(f"  {line}"))
            make_owner(service, _WORKSPACE)
            told.write_text(json.dumps({"now": now}))
        else:
            tell(f"{words} points, as they were filled {(now - kept) // 60} min ago")
        yield service, stock


def _folder(scratch: Path, keep: Path | None, clusters: int) -> Path:
    if keep is None:
        return scratch / f"sqlite-{clusters}"
    made_of = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("stock*.py")):
        made_of.update(file.read_bytes())
    folder = keep / f"{revisions.known()[-1]}-{clusters}-{made_of.hexdigest()[:8]}"
    told = folder / "stock.json"
    if folder.exists() and (not told.exists() or time.time() - told.stat().st_mtime > _KEPT):
        for file in folder.iterdir():  # too old, or it was never filled to the end
            file.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _size(
    reader: Reader,
    path: str,
    headers: Message,
    body: bytes,
    fetched: dict[str, tuple[int, list[str]]],
) -> Size:
    plain = gzip.decompress(body) if headers["Content-Encoding"] == "gzip" else body
    whole = len(body)
    if headers["Content-Type"].startswith("text/html"):
        whole += _with_what_it_needs(reader, path, plain.decode(), fetched)
    return Size(len(plain), len(body), whole)


def _with_what_it_needs(
    reader: Reader, path: str, html: str, fetched: dict[str, tuple[int, list[str]]]
) -> int:
    """Return the bytes, as they are sent, of what a browser fetches for a page of this HTML.

    ``fetched`` has the bytes of what was fetched before, and what that names.
    """
    wanted = [urljoin(path, one) for one in _Assets.of(html)]
    sizes: dict[str, int] = {}
    while wanted:
        address = wanted.pop().partition("#")[0]
        if address in sizes or not address.startswith("/"):
            continue
        if address not in fetched:
            fetched[address] = _fetch(reader, address)
        sizes[address], named = fetched[address]
        wanted += named
    return sum(sizes.values())


def _fetch(reader: Reader, address: str) -> tuple[int, list[str]]:
    """Return the bytes of a file as it is sent, and the addresses that it names in its styles."""
    _, headers, body = reader.ask(address)
    if not headers["Content-Type"].startswith("text/css"):
        return len(body), []
    plain = gzip.decompress(body) if headers["Content-Encoding"] == "gzip" else body
    named = re.findall(r"url\(\s*[\"']?([^\"')]+)", plain.decode())
    return len(body), [urljoin(address, one) for one in named if not one.startswith("data:")]


#: What links are fetched for by themselves.
_FETCHED = ("stylesheet", "icon", "preload", "modulepreload")


class _Assets(HTMLParser):
    """Finds scripts, styles, icons and pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    @classmethod
    def of(cls, html: str) -> list[str]:
        parser = cls()
        parser.feed(html)
        return parser.found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        wanted = named.get("src") if tag in ("script", "img") else None
        if tag == "use" or (
            tag == "link" and named.get("rel") in ("stylesheet", "icon", "preload")
        ):
            wanted = named.get("href")
        if wanted:
            self.found.append(wanted)
