"""A web server on loopback that takes notifications."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.patience import wait_until


class Webhook:
    """Use it in a with-statement. ``status`` is what it answers, once ``go_on`` is set.

    ``location``: where it redirects to.
    """

    def __init__(self) -> None:
        self.status = 200
        self.location: str | None = None
        self.told: list[dict[str, Any]] = []
        self.refused = 0
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                webhook.reached.set()
                webhook.go_on.wait()
                if webhook.status == 200:
                    webhook.told.append(json.loads(body))
                else:
                    webhook.refused += 1
                self.send_response(webhook.status)
                self.send_header("Content-Length", "0")
                if webhook.location is not None:
                    self.send_header("Location", webhook.location)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """Its address, as Apprise writes it, with a secret in it."""
        return f"json://127.0.0.1:{self._server.server_address[1]}/hooks/s3cr3t-part"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self, count: int) -> dict[str, Any]:
        """Return the last of ``count`` messages, once they are there."""
        wait_until(lambda: len(self.told) >= count, what=lambda: f"{count} messages: {self.told}")
        assert len(self.told) == count
        return self.told[-1]
