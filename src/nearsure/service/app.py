"""The app: routes, middleware, and the OpenAPI document."""

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import nearsure
from nearsure.encoders import Encoder
from nearsure.engines.contract import Engine
from nearsure.service.auth import Authenticate, Tokens
from nearsure.service.bodies import SCHEMAS
from nearsure.service.errors import UnexpectedErrors, answer_errors
from nearsure.service.middleware import (
    AccessLog,
    BodyLimit,
    InFlightLimit,
    LocalOnly,
    RateLimit,
    SecurityHeaders,
)
from nearsure.service.page import page_routes
from nearsure.service.routes.items import item_routes
from nearsure.service.routes.model import (
    health_routes,
    model_routes,
    report_routes,
    threshold_routes,
)
from nearsure.service.routes.queries import PREDICT, predict, query_routes
from nearsure.service.schemas import (
    BatchQuery,
    NewItems,
    NewLabel,
    NewThreshold,
    Query,
    Relabelling,
    Removal,
)
from nearsure.service.service import Opened, RunningService, open_gallery
from nearsure.service.settings import ServiceSettings
from nearsure.service.slow_clients import SlowBody
from nearsure.service.store import ignore_fit_warnings
from nearsure.service.telemetry import Measured, Measurements

# Ways to the routes that the framework does not have.
#
# One address is asked thousands of times a second, and the framework's way to a route (matching,
# dependencies, exit stacks) costs more than an answer in a batch does. The route itself is the same
# function, and stands in the OpenAPI document. HEAD is answered wherever GET is.


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


BODIES = (Query, BatchQuery, NewItems, NewLabel, Relabelling, Removal, NewThreshold)


def describe_bodies(app: FastAPI) -> None:
    """Let the app's document hold what its bodies look like."""
    framework = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = framework()
            _, schemas = models_json_schema(
                [(kind, "validation") for kind in BODIES], ref_template=f"{SCHEMAS}{{model}}"
            )
            made["components"]["schemas"].update(schemas["$defs"])
            app.openapi_schema = made
        return app.openapi_schema

    # FastAPI's own way of changing the document.
    app.openapi = document  # type: ignore[method-assign]


log = logging.getLogger("nearsure.service")


def create_app(
    settings: ServiceSettings,
    *,
    engine: Engine | None = None,
    encoder: Encoder | None = None,
    opened: Opened | None = None,
) -> FastAPI:
    """The service as an ASGI app; its gallery is open while it runs.

    Parameters
    ----------
    settings : ServiceSettings
        Where the gallery is, who may ask, and how much.
    engine, encoder : optional
        Used instead of those that the settings name. The engine is closed with the app.
    opened : Opened, optional
        A gallery that is open already.
    """
    tokens = Tokens(settings.read_tokens, settings.write_tokens)
    measurements = Measurements()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with warnings.catch_warnings():
            ignore_fit_warnings()
            gallery = opened
            if gallery is None:
                gallery = await asyncio.to_thread(open_gallery, settings, engine, encoder)
            app.state.service = RunningService(settings, gallery, measurements)
            app.state.status = "ok"
            try:
                yield
            finally:
                app.state.status = "stopping"
                await app.state.service.close()

    app = FastAPI(
        title="nearsure",
        version=nearsure.__version__,
        summary="Nearest-neighbour answers that say how sure they are.",
        docs_url=None,
        redoc_url=None,
        # The target would come from the client's own Host header.
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.status = "starting"
    _add_routes(app, tokens)
    answer_errors(app)
    _add_middleware(app, settings, tokens, measurements)
    describe_bodies(app)
    return app


def _add_routes(app: FastAPI, tokens: Tokens) -> None:
    for routes in (
        query_routes,
        item_routes,
        model_routes,
        threshold_routes,
        report_routes,
        health_routes,
    ):
        app.include_router(routes(tokens))
    app.include_router(page_routes())


def _add_middleware(
    app: FastAPI, settings: ServiceSettings, tokens: Tokens, measurements: Measurements
) -> None:
    """From the outermost, which sees a request first, to the routes."""
    guards: list[tuple[Any, dict[str, Any]]] = [
        (SecurityHeaders, {}),
        (AccessLog, {}),
        (Measured, {"measurements": measurements}),
    ]
    if settings.cors_origins:
        guards.append(
            (
                CORSMiddleware,
                {
                    "allow_origins": list(settings.cors_origins),
                    "allow_methods": ["GET", "POST", "PUT", "PATCH", "DELETE"],
                    "allow_headers": ["authorization", "content-type"],
                },
            )
        )
    guards.append((UnexpectedErrors, {}))
    if not tokens:
        guards.append((LocalOnly, {"origins": settings.cors_origins}))
    if settings.requests_per_second is not None:
        rate = {"requests_per_second": settings.requests_per_second, "tokens": tokens}
        guards.append((RateLimit, rate))
    guards += [
        (Authenticate, {"tokens": tokens}),
        # Behind it, so that requests without a token take no place of others.
        (InFlightLimit, {"largest": 2 * settings.largest_queue}),
        (BodyLimit, {"largest_body": settings.largest_body}),
        (SlowBody, {"patience": settings.patience}),
        (HeadAsGet, {}),
        (DirectRoute, {"path": PREDICT, "answer": predict}),
    ]
    for guard, options in reversed(guards):
        app.add_middleware(guard, **options)
