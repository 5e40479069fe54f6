"""A mail server on loopback that takes notifications: as much of SMTP (RFC 5321) as they need."""

from __future__ import annotations

import base64
import email
import email.policy
import socketserver
import threading
from email.message import EmailMessage
from typing import Self

from tests.patience import wait_until


class MailServer:
    """Use it in a with-statement. It takes mail from who signs in as ``daskscope`` alone.

    While ``refuses`` is set, no recipient is known.
    """

    password = "s3cr3t-part"

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], EmailMessage]] = []
        self.refuses = False
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                server._talk(self)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def address(self, password: str = password) -> str:
        """Its address, as Apprise writes it, with a secret in it."""
        port = self._server.server_address[1]
        return (
            f"mailto://daskscope:{password}@127.0.0.1:{port}"
            "?from=daskscope@example.org&to=ada@example.org&mode=insecure"
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self, count: int) -> tuple[list[str], EmailMessage]:
        """Return the last of ``count`` mails, once they are there."""
        wait_until(lambda: len(self.mails) >= count, what=f"{count} mails")
        assert len(self.mails) == count
        return self.mails[-1]

    def _talk(self, client: socketserver.StreamRequestHandler) -> None:
        def say(line: str) -> None:
            client.wfile.write(line.encode() + b"\r\n")

        known, recipients = False, list[str]()
        say("220 mail.example.org ESMTP")
        for line in client.rfile:
            word, _, rest = line.decode().strip().partition(" ")
            match word.upper():
                case "EHLO" | "HELO":
                    say("250-mail.example.org")
                    say("250-8BITMIME")
                    say("250 AUTH PLAIN")
                case "AUTH":
                    plain = base64.b64decode(rest.split()[-1]).split(b"\0")
                    known = plain[1:] == [b"daskscope", self.password.encode()]
                    say("235 welcome" if known else "535 5.7.8 not with this password")
                case "MAIL":
                    recipients = []
                    say("250 fine" if known else "530 5.7.0 sign in first")
                case "RCPT":
                    if not self.refuses:
                        recipients.append(rest.partition("<")[2].partition(">")[0])
                    say("550 5.1.1 no such user here" if self.refuses else "250 fine")
                case "DATA":
                    say("354 go on")
                    lines: list[bytes] = []
                    while (part := client.rfile.readline()) not in (b".\r\n", b""):
                        lines.append(part.removeprefix(b".") if part[:2] == b".." else part)
                    mail = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
                    assert isinstance(mail, EmailMessage)
                    self.mails.append((recipients, mail))
                    say("250 taken")
                case "QUIT":
                    say("221 bye")
                    return
                case _:
                    say("250 fine")
