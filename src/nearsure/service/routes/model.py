"""Routes of the model: state, refit, threshold, report, audit, health, metrics."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from nearsure.service.auth import Rights, Tokens
from nearsure.service.bodies import describe_body, json_answer, read_body
from nearsure.service.errors import SHORTLY, ProblemError
from nearsure.service.routes import problems
from nearsure.service.schemas import InTheMaking, Model, NewThreshold, RefitState, Status, Threshold
from nearsure.service.service import RunningService, get_service
from nearsure.service.thresholds import DEFAULT_CERTAINTY, ThresholdInUse


def model_routes(tokens: Tokens) -> APIRouter:
    """GET /v1/model, POST and GET /v1/refit."""
    router = APIRouter(prefix="/v1", tags=["model"])

    @router.get(
        "/model", response_model=Model, responses=problems(), summary="The fit that answers"
    )
    async def get_model(
        request: Request, rights: Annotated[Rights, Depends(tokens.may_read)]
    ) -> Response:
        service = get_service(request)
        document = await service.figures(lambda: describe_model(service))
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
        service = get_service(request)
        return json_answer(await service.figures(service.refits.start), 202)

    @router.get(
        "/refit",
        response_model=RefitState,
        responses=problems(),
        summary="Is a fit under way?",
        dependencies=[Depends(tokens.may_read)],
    )
    async def get_refit(request: Request) -> Response:
        return json_answer(get_service(request).refits.state())

    return router


def describe_model(service: RunningService) -> dict[str, Any]:
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


def threshold_routes(tokens: Tokens) -> APIRouter:
    """GET and PUT /v1/threshold, GET /v1/threshold/for."""
    router = APIRouter(prefix="/v1/threshold", tags=["threshold"])

    @router.get(
        "",
        response_model=Threshold,
        responses=problems(409),
        dependencies=[Depends(tokens.may_read)],
        summary="The threshold in use",
    )
    async def get_threshold(request: Request) -> Response:
        return json_answer(get_service(request).gallery.fit.threshold.document())

    @router.get(
        "/for",
        response_model=Threshold,
        responses=problems(409),
        dependencies=[Depends(tokens.may_read)],
        summary="The threshold that a precision would need",
    )
    async def get_threshold_for(
        request: Request,
        precision: Annotated[float, Query(gt=0, lt=1, examples=[0.99])],
        certainty: Annotated[float, Query(gt=0, lt=1)] = DEFAULT_CERTAINTY,
    ) -> Response:
        service = get_service(request)
        chosen = await service.survey(lambda: service.gallery.threshold_for(precision, certainty))
        return json_answer(chosen.document())

    @router.put(
        "",
        response_model=Threshold,
        responses=problems(400, 409, 415),
        dependencies=[Depends(tokens.may_write)],
        openapi_extra=describe_body(NewThreshold, {"precision": 0.99}),
        summary="Use another threshold, or none",
    )
    async def put_threshold(request: Request) -> Response:
        service = get_service(request)
        new = await read_body(request, NewThreshold)
        if new.threshold is not None and new.precision is not None:
            raise ProblemError(
                422,
                "invalid_request",
                "Only one of threshold and precision may be given. Got both.",
            )
        if new.precision is None:
            used = await service.write(lambda: service.gallery.set_threshold(new.threshold))
        else:
            used = await _choose_and_use(service, new.precision)
        return json_answer(used.document())

    return router


async def _choose_and_use(service: RunningService, precision: float) -> ThresholdInUse:
    """Choose a threshold beside the writers, and use it if no other fit has taken over."""
    gallery = service.gallery
    while True:
        chosen = await service.survey(lambda: gallery.threshold_for(precision, DEFAULT_CERTAINTY))
        if await service.write(partial(gallery.use_threshold, chosen)):
            return chosen


MAKING: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The document.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    202: {"model": InTheMaking, "description": "It is being made."},
    **problems(409),
}


def report_routes(tokens: Tokens) -> APIRouter:
    """GET /v1/report and /v1/audit."""
    router = APIRouter(prefix="/v1", tags=["report"], dependencies=[Depends(tokens.may_read)])

    @router.get("/report", response_class=Response, responses=MAKING, summary="The live report")
    async def get_report(request: Request) -> Response:
        return _sent(get_service(request).report.now())

    @router.get(
        "/audit", response_class=Response, responses=MAKING, summary="Suspect labels and the like"
    )
    async def get_audit(request: Request) -> Response:
        return _sent(get_service(request).audit.now())

    return router


def _sent(document: bytes | None) -> Response:
    if document is not None:
        return Response(document, media_type="application/json")
    answer = json_answer({"status": "making"}, 202)
    answer.headers["retry-after"] = str(SHORTLY)
    return answer


def health_routes(tokens: Tokens) -> APIRouter:
    """GET /healthz, /readyz and /metrics."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz", response_model=Status, summary="Is the process alive?")
    async def healthz() -> Response:
        return json_answer({"status": "ok"})

    @router.get(
        "/readyz",
        response_model=Status,
        responses={
            503: {
                "model": Status,
                "description": "Starting or stopping, or the gallery cannot be read or reached.",
            }
        },
        summary="Should it be asked?",
    )
    async def readyz(request: Request) -> Response:
        status = request.app.state.status
        if status != "ok":
            return json_answer({"status": status}, 503)
        reason = await get_service(request).why_unavailable()
        if reason is not None:
            return json_answer({"status": "unavailable", "reason": reason}, 503)
        return json_answer({"status": "ok"})

    @router.get(
        "/metrics",
        response_class=Response,
        responses={
            **problems(),
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        },
        dependencies=[Depends(tokens.may_read)],
        summary="Figures for Prometheus",
    )
    async def metrics(request: Request) -> Response:
        service = get_service(request)
        text = await service.figures(service.measurements.text)
        return Response(text, media_type=service.measurements.content_type)

    return router
