"""Certificates as certbot keeps them, from an authority of the tests' own."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import trustme

from tests.patience import PATIENCE


class Certificates:
    """What certbot keeps: links to the newest of several pairs, from one authority."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self._issued = 0
        self.authority = folder / "authority.pem"
        self._authority.cert_pem.write_to_path(str(self.authority))
        self.cert = folder / "cert.pem"
        self.key = folder / "key.pem"
        self.renew()

    @property
    def options(self) -> dict[str, Any]:
        return {"tls_cert": self.cert, "tls_key": self.key, "authority": self.authority}

    def renew(self) -> None:
        issued = self._authority.issue_cert("127.0.0.1", "localhost")
        self._issued += 1
        cert, key = (self._folder / f"{what}{self._issued}.pem" for what in ("cert", "key"))
        for blob in issued.cert_chain_pems:
            blob.write_to_path(str(cert), append=True)
        issued.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        for link, file in ((self.cert, cert), (self.key, key)):
            fresh = link.with_suffix(".new")
            fresh.symlink_to(file)
            fresh.rename(link)

    def serial(self, port: int) -> int:
        """Return the number of the certificate that is served."""
        context = ssl.create_default_context(cafile=str(self.authority))
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as raw:
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
                found = connection.getpeercert()
        assert found is not None
        return int(str(found["serialNumber"]), 16)
