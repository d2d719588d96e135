"""Bodies that come too slowly are refused."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.service.guards.refusal import RefusableCall
from nearsure.service.problems import ProblemError


class SlowBody:
    """ASGI middleware: 408 and an end of the connection if a body takes longer than `patience`.

    Parameters
    ----------
    app : ASGI application
    patience : float
        Seconds for the whole body, from the end of the headers.
    """

    def __init__(self, app: ASGIApp, patience: float) -> None:
        self.app = app
        self.patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and watch the clock until its body is complete."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call = RefusableCall(send)
        deadline = asyncio.get_running_loop().time() + self.patience
        complete = False

        async def timed() -> Message:
            nonlocal complete
            if complete:
                # What follows the body is the end of the connection, for which one may wait long.
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise call.refuse(self._too_slow()) from None
            complete = not message.get("more_body", False)
            return message

        await call.run(self.app, scope, timed)

    def _too_slow(self) -> ProblemError:
        return ProblemError(
            408,
            "body_too_slow",
            f"The body of a request must arrive within {self.patience:g} s.",
            {"connection": "close"},
        )
