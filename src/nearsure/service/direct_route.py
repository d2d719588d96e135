"""Ways to the routes that the framework does not have.

One address is asked thousands of times a second, and the framework's way to a route (matching,
dependencies, exit stacks) costs more than an answer in a batch does. The route itself is the same
function, and stands in the OpenAPI document. HEAD is answered wherever GET is.
"""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class DirectRoute:
    """ASGI middleware next to the routes, behind all guards, that answers for one of them.

    Parameters
    ----------
    app : ASGI application
        Answers everything else.
    path : str
        The address.
    answer : callable
        The route's function, for POST.
    """

    def __init__(
        self, app: ASGIApp, path: str, answer: Callable[[Request], Awaitable[Response]]
    ) -> None:
        self.app = app
        self.path = path
        self.answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass a request on."""
        if scope["type"] != "http" or scope["path"] != self.path or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        # Under this name requests are counted, as the router would have it.
        scope["route"] = self
        response = await self.answer(Request(scope, receive, send))
        await response(scope, receive, send)


class HeadAsGet:
    """ASGI middleware next to the routes: HEAD is answered as GET is, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and drop the body of its answer."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        asked = {**scope, "method": "GET"}
        try:
            await self.app(asked, receive, without_body)
        finally:
            # Under this name requests are counted.
            if "route" in asked:
                scope["route"] = asked["route"]
