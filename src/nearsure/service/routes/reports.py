"""What the gallery's own points say about it."""

from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from nearsure.service.guards.security import Tokens
from nearsure.service.json_bodies import json_answer
from nearsure.service.problems import SHORTLY
from nearsure.service.routes.problems_declared import problems
from nearsure.service.running_service import service_of
from nearsure.service.schemas import InTheMaking

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
        return _sent(service_of(request).report.now())

    @router.get(
        "/audit", response_class=Response, responses=MAKING, summary="Suspect labels and the like"
    )
    async def get_audit(request: Request) -> Response:
        return _sent(service_of(request).audit.now())

    return router


def _sent(document: bytes | None) -> Response:
    if document is not None:
        return Response(document, media_type="application/json")
    answer = json_answer({"status": "making"}, 202)
    answer.headers["retry-after"] = str(SHORTLY)
    return answer
