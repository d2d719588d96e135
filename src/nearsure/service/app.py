"""The app: routes, guards around them, and a gallery that is opened and closed with it."""

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

import nearsure
from nearsure.encoders import Encoder
from nearsure.engines.contract import Engine
from nearsure.service.direct_route import DirectRoute, HeadAsGet
from nearsure.service.error_answers import UnexpectedErrors, answer_errors
from nearsure.service.gallery.fits import ignore_fit_warnings
from nearsure.service.gallery.opening import Opened, open_gallery
from nearsure.service.guards.access_log import AccessLog
from nearsure.service.guards.body_limit import BodyLimit
from nearsure.service.guards.in_flight import InFlightLimit
from nearsure.service.guards.local_only import LocalOnly
from nearsure.service.guards.measurements import Measured, Measurements
from nearsure.service.guards.rate_limit import RateLimit
from nearsure.service.guards.security import Authenticate, Tokens
from nearsure.service.guards.security_headers import SecurityHeaders
from nearsure.service.guards.slow_clients import SlowBody
from nearsure.service.openapi_document import describe_bodies
from nearsure.service.pages import page_routes
from nearsure.service.routes.health import health_routes
from nearsure.service.routes.items import item_routes
from nearsure.service.routes.model import model_routes
from nearsure.service.routes.queries import PREDICT, predict, query_routes
from nearsure.service.routes.reports import report_routes
from nearsure.service.routes.thresholds import threshold_routes
from nearsure.service.running_service import RunningService
from nearsure.service.settings import ServiceSettings

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
        # Where to would be told by the client's own Host header.
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.status = "starting"
    _add_routes(app, tokens)
    answer_errors(app)
    _add_guards(app, settings, tokens, measurements)
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


def _add_guards(
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
        # Behind it, so that strangers take no place of those who are known.
        (InFlightLimit, {"largest": 2 * settings.largest_queue}),
        (BodyLimit, {"largest_body": settings.largest_body}),
        (SlowBody, {"patience": settings.patience}),
        (HeadAsGet, {}),
        (DirectRoute, {"path": PREDICT, "answer": predict}),
    ]
    for guard, options in reversed(guards):
        app.add_middleware(guard, **options)
