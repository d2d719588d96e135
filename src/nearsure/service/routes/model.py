"""The fit: what it is, and how to make it anew."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from nearsure.service.guards.security import Rights, Tokens
from nearsure.service.json_bodies import json_answer
from nearsure.service.routes.problems_declared import problems
from nearsure.service.running_service import RunningService, service_of
from nearsure.service.schemas import Model, RefitState


def model_routes(tokens: Tokens) -> APIRouter:
    """GET /v1/model, POST and GET /v1/refit."""
    router = APIRouter(prefix="/v1", tags=["model"])

    @router.get(
        "/model", response_model=Model, responses=problems(), summary="The fit that answers"
    )
    async def get_model(
        request: Request, rights: Annotated[Rights, Depends(tokens.may_read)]
    ) -> Response:
        service = service_of(request)
        document = await service.figures(lambda: described(service))
        return json_answer({**document, "writable": rights is Rights.WRITE})

    @router.post(
        "/refit",
        status_code=202,
        response_model=RefitState,
        responses=problems(409),
        summary="Fit anew, in the background",
        dependencies=[Depends(tokens.may_write)],
    )
    async def start_refit(request: Request) -> Response:
        service = service_of(request)
        return json_answer(await service.figures(service.refits.start), 202)

    @router.get(
        "/refit",
        response_model=RefitState,
        responses=problems(),
        summary="Is a fit under way?",
        dependencies=[Depends(tokens.may_read)],
    )
    async def get_refit(request: Request) -> Response:
        return json_answer(service_of(request).refits.state())

    return router


def described(service: RunningService) -> dict[str, Any]:
    """A `Model`, without what depends on who asks."""
    engine, encoder = service.gallery.engine, service.encoder
    about = {
        "size": engine.size(),
        "dimension": engine.dimension,
        "engine": dict(engine.fingerprint()),
        "encoder": None if encoder is None else encoder.kind,
    }
    if not service.gallery.is_fitted:
        return {
            **about,
            "model": 0,
            "n_classes": 0,
            "k": 0,
            "rule": "not fitted yet",
            "metric": engine.metric,
            "temperature": None,
            "unknown_share": None,
            "share_changed": 1.0,
            "threshold": None,
        }
    fit = service.gallery.fit
    classifier = fit.classifier
    return {
        **about,
        "model": fit.number,
        "n_classes": int((fit.class_counts > 0).sum()),
        "k": classifier.n_neighbors_,
        "rule": fit.rule,
        "metric": classifier.metric,
        "temperature": classifier.temperature_,
        "unknown_share": classifier.unknown_share,
        "share_changed": fit.share_changed,
        "threshold": fit.threshold.threshold,
    }
