"""The one address that is asked thousands of times a second, reached without the router.

The framework's way to a route (matching, dependencies, exit stacks) costs more than an answer in a
batch does. The route itself is the same function, and stands in the OpenAPI document.
"""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


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
