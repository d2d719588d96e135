"""Whether the service lives, and whether it should be asked."""

from fastapi import APIRouter, Depends, Request, Response

from nearsure.service.guards.security import Tokens
from nearsure.service.json_bodies import json_answer
from nearsure.service.routes.problems_declared import problems
from nearsure.service.running_service import service_of
from nearsure.service.schemas import Status


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
        reason = await service_of(request).why_unavailable()
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
        service = service_of(request)
        text = await service.figures(service.measurements.text)
        return Response(text, media_type=service.measurements.content_type)

    return router
