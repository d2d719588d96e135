"""Routes of the model: state, refit, threshold, report, audit, health, metrics."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from nearsure.service.answers import DEFAULT_CERTAINTY, ThresholdInUse
from nearsure.service.auth import Rights, may_read, may_write, rights_of
from nearsure.service.errors import SHORTLY, ProblemError
from nearsure.service.routes import make_router, problems
from nearsure.service.schemas import (
    InTheMaking,
    Model,
    NewThreshold,
    Promise,
    RefitState,
    Status,
    Threshold,
    describe_body,
    json_answer,
    read_body,
)
from nearsure.service.service import RunningService, get_service

DOCUMENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The document.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    202: {"model": InTheMaking, "description": "It is being made."},
    **problems(409),
}
FIGURES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {
        "model": Status,
        "description": "Starting or stopping, or the gallery cannot be read or reached.",
    }
}

model, refits = make_router("model", may_read), make_router("model", may_write)
thresholds = make_router("threshold", may_read)
new_thresholds = make_router("threshold", may_write)
reports, figures = make_router("report", may_read), make_router("health", may_read)
health = APIRouter(tags=["health"])
ROUTERS = model, refits, thresholds, new_thresholds, reports, figures, health


@model.get("/v1/model", response_model=Model, summary="The fit that answers")
async def get_model(request: Request) -> Response:
    service = get_service(request)
    document = await service.figures.run(lambda: describe_model(service))
    return json_answer({**document, "writable": rights_of(request) is Rights.WRITE})


@refits.post(
    "/v1/refit",
    status_code=202,
    response_model=RefitState,
    responses=problems(409),
    summary="Refit, in the background",
)
async def start_refit(request: Request) -> Response:
    service = get_service(request)
    return json_answer(await service.figures.run(service.refits.start), 202)


@model.get("/v1/refit", response_model=RefitState, summary="State of the refit")
async def get_refit(request: Request) -> Response:
    return json_answer(get_service(request).refits.state())


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
            "head": None,
            "head_choice": None,
            "metric": engine.metric,
            "temperature": None,
            "unknown_share": None,
            "share_changed": 1.0,
            "threshold": None,
        }
    fit = service.gallery.fit
    classifier = fit.classifier
    head = classifier.head_fit_
    return {
        **about,
        "engine": classifier.fingerprint_,
        "model": fit.number,
        "n_classes": int((classifier.class_counts_ > 0).sum()),
        "k": classifier.n_neighbors_,
        "rule": classifier.rule_.name,
        "head": None if head is None else head.name,
        "head_choice": None if head is None else str(head),
        "metric": classifier.metric,
        "temperature": classifier.temperature_,
        "unknown_share": classifier.unknown_share,
        "share_changed": fit.share_changed,
        "threshold": fit.accepting.threshold,
    }


@thresholds.get(
    "/v1/threshold",
    response_model=Threshold,
    responses=problems(409),
    summary="The threshold in use",
)
async def get_threshold(request: Request) -> Response:
    return json_answer(get_service(request).gallery.fit.threshold.document())


@thresholds.get(
    "/v1/threshold/for",
    response_model=Threshold,
    responses=problems(409),
    summary="The threshold that a precision would need",
)
async def get_threshold_for(
    request: Request,
    precision: Annotated[float, Query(gt=0, lt=1, examples=[0.99])],
    certainty: Annotated[float, Query(gt=0, lt=1)] = DEFAULT_CERTAINTY,
) -> Response:
    service = get_service(request)
    chosen = await service.surveys.run(lambda: service.gallery.threshold_for(precision, certainty))
    return json_answer(chosen.document())


@new_thresholds.put(
    "/v1/threshold",
    response_model=Threshold,
    responses=problems(400, 409, 415),
    openapi_extra=describe_body(NewThreshold, {"precision": 0.99}),
    summary="Use another threshold, or none",
)
async def put_threshold(request: Request) -> Response:
    service = get_service(request)
    new = await read_body(request, NewThreshold)
    if new.threshold is not None and new.precision is not None:
        message = "Only one of threshold and precision may be given. Got both."
        raise ProblemError(422, "invalid_request", message)
    if new.precision is None:
        used = await service.write(lambda: service.gallery.set_threshold(new.threshold))
        service.watch.start_if_due()
    else:
        used = await _choose_and_use(service, new.precision)
    return json_answer(used.document())


async def _choose_and_use(service: RunningService, precision: float) -> ThresholdInUse:
    """Choose a threshold beside the writers, and use it if no other fit has taken over."""
    choose = partial(service.gallery.threshold_for, precision, DEFAULT_CERTAINTY)
    while True:
        chosen = await service.surveys.run(choose)
        if await service.write(partial(service.gallery.use_threshold, chosen)):
            service.watch.start_if_due()
            return chosen


@thresholds.get(
    "/v1/promise",
    response_model=Promise,
    responses=problems(409),
    summary="Whether the promise of the threshold holds for recent queries",
)
async def get_promise(request: Request) -> Response:
    service = get_service(request)
    fit, watch = service.gallery.fit, service.watch
    watch.start_if_due()
    promise, accuracy = fit.promise, fit.promise.accuracy
    is_made = fit.promise_state is not None or promise.reasons
    has_labels = fit.classifier.recalibrated_ is not None
    return json_answer(
        {
            "state": fit.promise_state,
            "sentence": promise.sentence if is_made else fit.threshold.sentence,
            "reasons": promise.reasons,
            "compared_with": "labelled queries" if has_labels else "gallery",
            "threshold": fit.accepting.threshold,
            "accuracy": accuracy and {"low": accuracy[0], "high": accuracy[1]},
            "n_queries": promise.n_queries,
            "checked": promise.checked,
            "window": len(watch.window),
        }
    )


@reports.get("/v1/report", response_class=Response, responses=DOCUMENT, summary="The live report")
async def get_report(request: Request) -> Response:
    return _send(get_service(request).report.now())


@reports.get(
    "/v1/audit", response_class=Response, responses=DOCUMENT, summary="Suspect labels and the like"
)
async def get_audit(request: Request) -> Response:
    return _send(get_service(request).audit.now())


def _send(document: bytes | None) -> Response:
    if document is not None:
        return Response(document, media_type="application/json")
    answer = json_answer({"status": "making"}, 202)
    answer.headers["retry-after"] = str(SHORTLY)
    return answer


@health.get("/healthz", response_model=Status, summary="Is the process alive?")
async def healthz() -> Response:
    return json_answer({"status": "ok"})


@health.get(
    "/readyz", response_model=Status, responses=NOT_READY, summary="Is it ready for requests?"
)
async def readyz(request: Request) -> Response:
    status = request.app.state.status
    if status != "ok":
        return json_answer({"status": status}, 503)
    reason = await get_service(request).why_unavailable()
    if reason is not None:
        return json_answer({"status": "unavailable", "reason": reason}, 503)
    return json_answer({"status": "ok"})


@figures.get(
    "/metrics", response_class=Response, responses=FIGURES, summary="Figures for Prometheus"
)
async def metrics(request: Request) -> Response:
    service = get_service(request)
    text = await service.figures.run(service.measurements.text)
    return Response(text, media_type=service.measurements.content_type)
