"""How many requests may be under way at once."""

from starlette.types import ASGIApp, Receive, Scope, Send

from nearsure.service.guards.security import needs_token
from nearsure.service.problems import Overloaded


class InFlightLimit:
    """ASGI middleware: 503 with Retry-After at once, while too many requests are under way.

    Nothing of a request that is turned away is read. What needs no token (health, readiness, the
    page and its assets) takes no place and is always answered.

    Parameters
    ----------
    app : ASGI application
    largest : int
        Requests under way.
    """

    def __init__(self, app: ASGIApp, largest: int) -> None:
        self.app = app
        self.largest = largest
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if there is room for it."""
        if scope["type"] != "http" or not needs_token(scope):
            await self.app(scope, receive, send)
            return
        if self.under_way >= self.largest:
            await Overloaded(
                f"{self.largest} requests are under way already. Ask again shortly."
            ).answer(send)
            return
        self.under_way += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.under_way -= 1
