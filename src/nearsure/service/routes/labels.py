"""Labels of recent queries: which to give, what was learned from them, and how to forget them."""

from typing import Annotated, Any

import numpy as np
from fastapi import Query, Request, Response

from nearsure.arrays import AnyArray
from nearsure.drift import FEWEST
from nearsure.service.auth import may_read, may_write
from nearsure.service.errors import ProblemError
from nearsure.service.labels import describe_labels, find_unlabelled, parse_true_labels
from nearsure.service.routes import make_router, problems
from nearsure.service.routes.queries import check_batch, read_many
from nearsure.service.schemas import (
    LabelledQueries,
    LabelledQuery,
    Labels,
    ProposedQueries,
    describe_body,
    json_answer,
)
from nearsure.service.service import RunningService, get_service

LABELLED = {"queries": [{"key": 17, "label": "heron"}, {"key": 23, "label": "egret"}]}
MOST_PROPOSED = 100

ROUTERS = reading, writing = make_router("labels", may_read), make_router("labels", may_write)


@reading.get(
    "/v1/labels",
    response_model=Labels,
    responses=problems(409),
    summary="What labelled queries have taught",
)
async def get_labels(request: Request) -> Response:
    service = get_service(request)
    return json_answer(await service.surveys.run(lambda: _describe(service)))


# What others have asked is not for everybody who may ask.
@writing.get(
    "/v1/labels/queries",
    response_model=ProposedQueries,
    responses=problems(409),
    summary="Recent queries that are worth a label",
)
async def get_queries_to_label(
    request: Request,
    n: Annotated[int, Query(ge=1, le=MOST_PROPOSED, description="How many at most.")] = 20,
    seed: Annotated[int, Query(ge=0, le=2**32 - 1, description="Random seed.")] = 0,
    neighbors: Annotated[int, Query(ge=0, le=1000)] = 5,
    classes: Annotated[int, Query(ge=1, le=1000)] = 5,
) -> Response:
    service = get_service(request)

    def propose() -> dict[str, Any]:
        window, classifier = service.watch.window, service.gallery.fit.classifier
        recent = window.read()
        unlabelled = np.array(find_unlabelled(classifier, recent.vectors), np.int64)
        if len(recent.keys) < FEWEST or not len(unlabelled):
            raise ProblemError(
                409,
                "too_few_queries",
                f"{FEWEST} different queries must have come since the start of the service, and "
                f"some must be without a label. There are {len(recent.keys)}, and "
                f"{len(unlabelled)} without: ask more.",
            )
        chosen = classifier.choose_queries_to_label(
            recent.vectors[unlabelled], min(n, len(unlabelled)), seed=seed
        )
        rows = unlabelled[chosen]
        window.keep_proposed([recent.keys[row] for row in rows], recent.vectors[rows])
        answered = service.gallery.predict(recent.vectors[rows])
        queries = [
            {
                "key": recent.keys[row],
                "name": recent.looks[row].name,
                "text": recent.looks[row].text,
                "picture": recent.looks[row].picture,
                "answer": answers.document(place, neighbors=neighbors, classes=classes),
            }
            for row, (answers, place) in zip(rows.tolist(), answered, strict=True)
        ]
        return {"queries": queries, "window": len(unlabelled)}

    return json_answer(await service.surveys.run(propose))


@writing.post(
    "/v1/labels",
    response_model=Labels,
    responses=problems(400, 404, 409, 415),
    openapi_extra=describe_body(LabelledQueries, LABELLED),
    summary="Label queries, and let confidence and promises rest on them",
)
async def add_labels(request: Request) -> Response:
    service = get_service(request)
    new = (await read_many(request, LabelledQueries)).queries
    check_batch(len(new), service)
    vectors = _find_vectors(service, new)
    labels = parse_true_labels(
        [one.label for one in new], service.gallery.fit.classifier, service.gallery.engine
    )

    def learn() -> dict[str, Any]:
        service.gallery.recalibrate(vectors, labels)
        service.watch.start_if_due()
        return _describe(service)

    return json_answer(await service.write(learn))


@writing.delete(
    "/v1/labels",
    response_model=Labels,
    responses=problems(409),
    summary="Forget the labels: confidence and promises rest on the gallery alone",
)
async def forget_labels(request: Request) -> Response:
    service = get_service(request)

    def forget() -> dict[str, Any]:
        service.gallery.forget_labels()
        service.watch.start_if_due()
        return _describe(service)

    return json_answer(await service.write(forget))


def _describe(service: RunningService) -> dict[str, Any]:
    fit = service.gallery.fit
    return describe_labels(fit.classifier, fit.number)


def _find_vectors(service: RunningService, labelled: list[LabelledQuery]) -> AnyArray:
    """The vectors of labelled queries, shape (n, dimension); an error if one is not there."""
    if any((one.key is None) == (one.vector is None) for one in labelled):
        message = "Each query must have exactly one of key and vector."
        raise ProblemError(422, "invalid_request", message)
    keys = [one.key for one in labelled if one.key is not None]
    if len(set(keys)) < len(keys):
        raise ProblemError(422, "invalid_request", "The keys must differ. Got one twice.")
    kept = service.watch.window.find_vectors()
    gone = [key for key in keys if key not in kept]
    if gone:
        raise ProblemError(
            404,
            "no_such_query",
            f"Query {gone[0]} is none of the recent queries any more. Label current queries from "
            "GET /v1/labels/queries, or send vectors.",
        )
    rows = [one.vector for one in labelled if one.vector is not None]
    sent = iter(service.vectors(rows) if rows else ())
    return np.stack([next(sent) if one.key is None else kept[one.key] for one in labelled])
