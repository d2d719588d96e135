"""From which confidence answers are accepted."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from nearsure.service.gallery.thresholds import DEFAULT_CERTAINTY, ThresholdInUse
from nearsure.service.guards.security import Tokens
from nearsure.service.json_bodies import described, json_answer, read_body
from nearsure.service.problems import ProblemError
from nearsure.service.routes.problems_declared import problems
from nearsure.service.running_service import RunningService, service_of
from nearsure.service.schemas import NewThreshold, Threshold


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
        return json_answer(service_of(request).gallery.fit.threshold.document())

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
        service = service_of(request)
        chosen = await service.survey(lambda: service.gallery.threshold_for(precision, certainty))
        return json_answer(chosen.document())

    @router.put(
        "",
        response_model=Threshold,
        responses=problems(400, 409, 415),
        dependencies=[Depends(tokens.may_write)],
        openapi_extra=described(NewThreshold, {"precision": 0.99}),
        summary="Use another threshold, or none",
    )
    async def put_threshold(request: Request) -> Response:
        service = service_of(request)
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
            used = await _chosen_and_used(service, new.precision)
        return json_answer(used.document())

    return router


async def _chosen_and_used(service: RunningService, precision: float) -> ThresholdInUse:
    """Choose a threshold beside the writers, and use it if no other fit has taken over."""
    gallery = service.gallery
    while True:
        chosen = await service.survey(lambda: gallery.threshold_for(precision, DEFAULT_CERTAINTY))
        if await service.write(partial(gallery.use_threshold, chosen)):
            return chosen
