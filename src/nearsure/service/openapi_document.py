"""The OpenAPI document, with the bodies that routes read themselves."""

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from nearsure.service.json_bodies import SCHEMAS
from nearsure.service.schemas import (
    BatchQuery,
    NewItems,
    NewLabel,
    NewThreshold,
    Query,
    Relabelling,
    Removal,
)

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
