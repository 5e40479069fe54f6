"""What goes over WebSockets is seen as what goes over TCP is."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from distributed.comm.core import connect, listen

from daskscope.worker_process import STALLED, Transfers

#: Where a binary message of a hundred MB begins: one that is not masked, and one that is.
BEGINS = b"\x82\x7f" + struct.pack("!Q", 100_000_000)
MASKED = b"\x82\xff" + BEGINS[2:] + bytes(4)


@pytest.mark.parametrize("to", ["the one that was asked", "the one that asked"])
def test_a_message_that_gets_further_is_on_its_way(to: str) -> None:
    async def main() -> list[int]:
        accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def handle(connection: Any) -> None:
            accepted.set_result(connection)
            await asyncio.Event().wait()

        listener = await listen("ws://127.0.0.1:0", handle, deserialize=False)
        asked: Any = await connect(listener.contact_address, deserialize=False)
        other = await accepted
        out, back = asked.sock.protocol.stream, other.handler.ws_connection.stream
        transfers, found = Transfers(), list[int]()
        found.append(transfers.look([asked, other], 0.0))
        receiver, sends, receives = (
            (other, out, back) if to == "the one that was asked" else (asked, back, out)
        )
        await sends.write(MASKED if sends is out else BEGINS)
        for turn in range(1, 4):
            await sends.write(bytes(1000))
            while receives._read_buffer_size < 1000 * turn:
                await asyncio.sleep(0.01)
            found.append(transfers.look([receiver], float(turn)))
        found.append(transfers.look([receiver], 3.0 + STALLED))
        asked.abort()
        listener.stop()
        return found

    assert asyncio.run(asyncio.wait_for(main(), 60.0)) == [0, 0, 1, 1, 0]
