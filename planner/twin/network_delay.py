"""The network between clients and the twin: each message arrives later by the same time, in its order."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Delayed:
    """An ASGI application behind a network.

    Parameters
    ----------
    app : the application.
    delay_s : of each way [s]. A request has it once, also if its body comes in parts.
    """

    def __init__(self, app: App, delay_s: float) -> None:
        self._app, self._delay_s = app, delay_s

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        arrives_s = loop.time() + self._delay_s
        under_way: asyncio.Queue[tuple[float, Message | None]] = asyncio.Queue()

        async def received() -> Message:
            message = await receive()
            has_gone = message["type"] == "http.disconnect"
            await asyncio.sleep(self._delay_s if has_gone else max(arrives_s - loop.time(), 0.0))
            return message

        async def sent(message: Message | None) -> None:
            under_way.put_nowait((loop.time() + self._delay_s, message))

        async def deliver() -> None:
            while True:
                due_s, message = await under_way.get()
                await asyncio.sleep(max(due_s - loop.time(), 0.0))
                if message is None:
                    return
                await send(message)

        delivery = asyncio.create_task(deliver())
        try:
            await self._app(scope, received, sent)
            await sent(None)
            await delivery
        finally:
            delivery.cancel()
