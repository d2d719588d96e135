"""The routes of the service, and the problems that they declare."""

from typing import Any

from fastapi import APIRouter
from fastapi.params import Depends

from nearsure.service.schemas import Problem

MEANINGS = {
    400: "The body cannot be read as JSON.",
    401: "A token is missing or unknown.",
    403: "The token may not do this.",
    404: "There is no such item.",
    408: "The request came too slowly.",
    409: "Not possible in the state that the gallery is in.",
    413: "The request is too large.",
    415: "The content is of another type.",
    422: "Something in the request is not what it should be.",
    429: "Too many requests.",
    500: "The service failed.",
    501: "Not configured.",
    503: "Overloaded, stopping, or the engine cannot be reached.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI has of problems with these statuses."""
    return {status: {"model": Problem, "description": MEANINGS[status]} for status in statuses}


def make_router(tag: str, needed: Depends) -> APIRouter:
    """A router of routes that need a token, with what may go wrong in each of them."""
    everywhere = problems(401, 403, 408, 413, 422, 429, 500, 503)
    return APIRouter(tags=[tag], dependencies=[needed], responses=everywhere)
