"""Routes of queries: labels, confidence, neighbours."""

from base64 import b64decode
from itertools import repeat
from typing import Annotated

import numpy as np
from fastapi import Query, Request, Response

from nearsure.arrays import AnyArray
from nearsure.index import unit_vectors
from nearsure.service.answers import Answers
from nearsure.service.auth import may_read
from nearsure.service.errors import ProblemError
from nearsure.service.items import parse_ids
from nearsure.service.routes import make_router, problems
from nearsure.service.schemas import (
    MOST_PLACED,
    Answer,
    BatchAnswer,
    BatchQuery,
    Body,
    Compared,
    Comparison,
    Neighborhood,
    PairQuery,
    Places,
    Placing,
    describe_body,
    json_answer,
    read_body,
)
from nearsure.service.schemas import Query as SingleQuery
from nearsure.service.service import RunningService, get_service
from nearsure.service.window import Look

PREDICT = "/v1/predict"
ONE = {"vector": [0.1, 0.7, 0.2], "neighbors": 3, "classes": 2}
SEVERAL = {"vectors": [[0.1, 0.7, 0.2], [0.9, 0.0, 0.1]], "neighbors": 0, "classes": 1}
TWO = {"first": {"vector": [0.1, 0.7, 0.2]}, "second": {"item": "owl-7"}, "base_rate": 0.1}
SOME = {"points": [{"vector": [0.1, 0.7, 0.2]}, {"item": "owl-7"}]}
IMAGES = {"image/*": {"schema": {"type": "string", "format": "binary"}}}

router = make_router("queries", may_read)
ROUTERS = (router,)


@router.post(
    PREDICT,
    response_model=Answer,
    responses=problems(400, 404, 409, 415, 501),
    openapi_extra=describe_body(SingleQuery, ONE),
    summary="Label and confidence of a query",
)
async def predict(request: Request) -> Response:
    """Answer one query."""
    query = await read_body(request, SingleQuery)
    service = get_service(request)
    answers, row = await _ask(service, query)
    return await _show(service, answers, row, neighbors=query.neighbors, classes=query.classes)


@router.post(
    "/v1/neighbors",
    response_model=Neighborhood,
    responses=problems(400, 404, 409, 415, 501),
    openapi_extra=describe_body(SingleQuery, ONE),
    summary="Nearest examples of a query",
)
async def neighbors(request: Request) -> Response:
    query = await read_body(request, SingleQuery)
    service = get_service(request)
    answers, row = await _ask(service, query)
    found = await service.reads.run(lambda: answers.neighbors(row, query.neighbors))
    return json_answer({"neighbors": found})


@router.post(
    "/v1/predict/batch",
    response_model=BatchAnswer,
    responses=problems(400, 409, 415, 501),
    openapi_extra=describe_body(BatchQuery, SEVERAL),
    summary="Labels and confidence of several vectors, texts or images",
)
async def predict_batch(request: Request) -> Response:
    service = get_service(request)
    query = await read_many(request, BatchQuery)
    given = [part for part in (query.vectors, query.texts, query.images) if part is not None]
    if len(given) != 1:
        message = "Exactly one of vectors, texts and images must be given. "
        raise ProblemError(422, "invalid_request", f"{message}Got {len(given)} instead.")
    n_queries = len(given[0])
    check_batch(n_queries, service)
    names: list[str | None] = [None] * n_queries
    if query.names is not None:
        names = list(query.names)
    if len(names) != n_queries:
        message = f"There must be as many names as queries, {n_queries}, or none. "
        raise ProblemError(422, "invalid_request", f"{message}Got {len(names)}.")
    images = [decode_image(image) for image in query.images or ()]
    encoded = None
    if query.vectors is None:
        encoded = await (
            service.encode("text", query.texts) if query.texts else service.encode("image", images)
        )

    def answer() -> Response:
        vectors = service.vectors(query.vectors or []) if encoded is None else encoded
        answers = service.predict(vectors)
        texts = query.texts or repeat(None)
        looks = zip(vectors, names, texts, strict=False)
        for vector, name, text in looks:
            if name is not None or text is not None:
                service.watch.window.describe(vector, Look(name, text))
        for vector, image in zip(vectors, images, strict=False):
            service.keep_picture(vector, image)
        wanted = {"neighbors": query.neighbors, "classes": query.classes}
        return json_answer({"answers": [one.document(row, **wanted) for one, row in answers]})

    return await service.reads.run(answer)


@router.post(
    "/v1/predict/image",
    response_model=Answer,
    responses=problems(409, 415, 501),
    openapi_extra={"requestBody": {"required": True, "content": IMAGES}},
    summary="Label and confidence of an image, if the service has an image encoder",
)
async def predict_image(
    request: Request,
    neighbors: Annotated[int, Query(ge=0, le=1000)] = 10,
    classes: Annotated[int, Query(ge=1, le=1000)] = 5,
) -> Response:
    if not request.headers.get("content-type", "").lower().startswith("image/"):
        raise ProblemError(
            415, "unsupported_media_type", "The body must be an image: content-type: image/..."
        )
    service = get_service(request)
    content = await request.body()
    (vector,) = await service.encode("image", [content])
    answers, row = await service.batcher.ask(vector)
    service.keep_picture(vector, content)
    return await _show(service, answers, row, neighbors=neighbors, classes=classes)


@router.post(
    "/v1/compare",
    response_model=Comparison,
    responses=problems(400, 404, 409, 415, 501),
    openapi_extra=describe_body(PairQuery, TWO),
    summary="Whether two vectors, items, texts or images are of one class",
)
async def compare(request: Request) -> Response:
    """Compare two; the first request after a fit waits until it is learned from pairs."""
    service = get_service(request)
    dimension = service.gallery.engine.dimension
    query = await read_body(request, PairQuery, rows=2, dimension=dimension)
    first, second = [await _vector_of(service, one) for one in (query.first, query.second)]
    return json_answer(
        await service.surveys.run(lambda: service.pairs.compare(first, second, query.base_rate))
    )


@router.post(
    "/v1/map/places",
    response_model=Places,
    responses=problems(400, 404, 409, 415, 501),
    openapi_extra=describe_body(Placing, SOME),
    summary="Where queries and items lie on the map of the report",
)
async def find_places(request: Request) -> Response:
    service = get_service(request)
    dimension = service.gallery.engine.dimension
    query = await read_body(request, Placing, rows=MOST_PLACED, dimension=dimension)
    vectors = np.stack([await _vector_of(service, one) for one in query.points])

    def place() -> list[dict[str, float]]:
        plane = service.gallery.read_whole(lambda classifier, _: service.plane.of(classifier))
        is_cosine = service.gallery.fit.classifier.metric_ == "cosine"
        places = plane.places(unit_vectors(vectors) if is_cosine else vectors)
        return [{"x": x, "y": y} for x, y in places.tolist()]

    return json_answer({"places": await service.surveys.run(place)})


async def _vector_of(service: RunningService, one: Compared) -> AnyArray:
    """What is compared as a vector, shape (dimension,)."""
    given = one.model_dump(exclude_none=True)
    if len(given) != 1:
        raise ProblemError(
            422,
            "invalid_request",
            "Exactly one of vector, item, text and image must be given of each of the two. "
            f"Got {len(given)} instead.",
        )
    if one.vector is not None:
        vector: AnyArray = service.vectors([one.vector])[0]
        return vector
    if one.text is not None:
        (vector,) = await service.encode("text", [one.text])
        return vector
    if one.image is not None:
        (vector,) = await service.encode("image", [decode_image(one.image)])
        return vector
    ids = parse_ids([str(one.item)], service.gallery.engine)
    stored = await service.reads.run(lambda: service.gallery.stored(ids))
    own: AnyArray = np.asarray(stored.vectors)[0]
    return own


async def _ask(service: RunningService, query: SingleQuery) -> tuple[Answers, int]:
    given = [query.vector is not None, query.item is not None, query.text is not None]
    if sum(given) != 1:
        raise ProblemError(
            422,
            "invalid_request",
            f"Exactly one of vector, item and text must be given. Got {sum(given)} instead.",
        )
    if query.vector is not None:
        vector = service.vectors([query.vector])[0]
        answer = await service.batcher.ask(vector)
        if query.name is not None:
            service.watch.window.describe(vector, Look(query.name))
        return answer
    if query.text is not None:
        (vector,) = await service.encode("text", [query.text])
        answer = await service.batcher.ask(vector)
        service.watch.window.describe(vector, Look(query.name, query.text))
        return answer
    ids = parse_ids([str(query.item)], service.gallery.engine)
    answers = await service.reads.run(lambda: service.gallery.predict_item(ids))
    service.count(answers)
    return answers, 0


async def _show(
    service: RunningService, answers: Answers, row: int, *, neighbors: int, classes: int
) -> Response:
    """An answer as JSON; texts of neighbours are read where other reads are."""
    if answers.texts is None:
        return json_answer(answers.document(row, neighbors=neighbors, classes=classes))
    return json_answer(
        await service.reads.run(lambda: answers.document(row, neighbors=neighbors, classes=classes))
    )


def decode_image(text: str) -> bytes:
    """The bytes of an image that came as text; 422 if it is no base64."""
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        message = "An image must be written in base64. Got something else."
        raise ProblemError(422, "invalid_request", message) from error


async def read_many(request: Request, kind: type[Body]) -> Body:
    """A body of as many vectors, items or ids as a request may have, or not many more."""
    service = get_service(request)
    return await read_body(
        request,
        kind,
        rows=service.settings.largest_batch,
        dimension=service.gallery.engine.dimension,
    )


def check_batch(n_rows: int, service: RunningService) -> None:
    """An error if a request has more rows than one may have."""
    most = service.settings.largest_batch
    if n_rows > most:
        raise ProblemError(
            422,
            "batch_too_large",
            f"A request may have {most} vectors or items. Got {n_rows}: send several requests.",
        )
