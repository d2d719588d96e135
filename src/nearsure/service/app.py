"""The app: routes, middleware, and the OpenAPI document."""

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import nearsure
from nearsure.encoders import Encoder
from nearsure.engines.contract import Engine
from nearsure.service import page
from nearsure.service.auth import Authenticate, Tokens
from nearsure.service.errors import raise_again
from nearsure.service.middleware import (
    BodyLimit,
    DirectRoute,
    Guard,
    Guarded,
    HeadAsGet,
    InFlightLimit,
    LocalOnly,
    Problems,
    RateLimit,
    SecurityHeaders,
)
from nearsure.service.routes import items, labels, model, queries
from nearsure.service.schemas import BODIES, SCHEMAS
from nearsure.service.service import Opened, RunningService, open_gallery
from nearsure.service.settings import ServiceSettings
from nearsure.service.store import ignore_fit_warnings
from nearsure.service.telemetry import Measurements, RequestRecorder


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

    app = _Service(
        title="nearsure",
        version=nearsure.__version__,
        summary="Nearest-neighbour answers with calibrated confidence.",
        docs_url=None,
        redoc_url=None,
        # The target would come from the client's own Host header.
        redirect_slashes=False,
        lifespan=lifespan,
        # Figures are the service's own; the framework would look for others at each request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        exception_handlers={HTTPException: raise_again, RequestValidationError: raise_again},
    )
    app.state.status = "starting"
    for router in (
        *queries.ROUTERS,
        *items.ROUTERS,
        *model.ROUTERS,
        *labels.ROUTERS,
        page.router,
    ):
        app.include_router(router)
    app.add_middleware(Guarded, guards=_guards(settings, tokens, measurements))
    return app


class _Service(FastAPI):
    """FastAPI whose document also holds the bodies that routes read themselves."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            _, schemas = models_json_schema(
                [(kind, "validation") for kind in BODIES], ref_template=f"{SCHEMAS}{{model}}"
            )
            super().openapi()["components"]["schemas"].update(schemas["$defs"])
        return super().openapi()


def _guards(settings: ServiceSettings, tokens: Tokens, measurements: Measurements) -> list[Guard]:
    """From the outermost, which sees a request first, to the routes."""
    guards: list[Guard] = [SecurityHeaders, partial(RequestRecorder, measurements=measurements)]
    if settings.cors_origins:
        guards.append(
            partial(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
                allow_headers=["authorization", "content-type"],
            )
        )
    guards.append(Problems)
    if not tokens:
        guards.append(partial(LocalOnly, origins=settings.cors_origins))
    if settings.requests_per_second is not None:
        rate = settings.requests_per_second
        guards.append(partial(RateLimit, requests_per_second=rate, tokens=tokens))
    return [
        *guards,
        partial(Authenticate, tokens=tokens),
        # Behind it, so that requests without a token take no place of others.
        partial(InFlightLimit, largest=2 * settings.largest_queue),
        partial(BodyLimit, largest_body=settings.largest_body, patience=settings.patience),
        HeadAsGet,
        partial(DirectRoute, path=queries.PREDICT, answer=queries.predict),
    ]
