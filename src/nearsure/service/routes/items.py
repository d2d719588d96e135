"""The items of the gallery: seen, added, relabelled, removed."""

from base64 import b64decode
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from fastapi import Path, Query, Request, Response

from nearsure.arrays import AnyArray
from nearsure.report.thumbnails import KEPT_SIDE, Thumbnails
from nearsure.service.auth import may_read, may_write
from nearsure.service.documents import answer_picture
from nearsure.service.errors import ProblemError
from nearsure.service.items import (
    LARGEST_PAGE,
    find_page,
    parse_ids,
    parse_labels,
    show_names,
    texts_in,
)
from nearsure.service.routes import make_router, problems
from nearsure.service.routes.queries import check_batch, decode_image, read_many
from nearsure.service.schemas import (
    Added,
    Changed,
    Item,
    ItemId,
    ItemPage,
    LabelText,
    NewItem,
    NewItems,
    NewLabel,
    Relabelling,
    Removal,
    describe_body,
    json_answer,
    read_body,
)
from nearsure.service.service import RunningService, get_service

NEW = {"items": [{"id": "photo-17", "label": "heron", "vector": [0.1, 0.7, 0.2]}]}
OTHER_LABEL = {"ids": ["photo-17", "photo-18"], "label": "egret"}
RIGHT_LABEL = {"ids": ["photo-17"], "label": "heron"}
GONE = {"ids": ["photo-17"]}
PICTURES = {
    "content": {
        kind: {"schema": {"type": "string", "format": "binary"}}
        for kind in ("image/jpeg", "image/png", "image/webp")
    }
}


@runtime_checkable
class KeepsLooks(Protocol):
    """An engine that keeps pictures and texts beside vectors."""

    def put_pictures(self, pictures: Mapping[Any, bytes]) -> None:
        """Keep some."""

    def put_texts(self, texts: Mapping[Any, str]) -> None:
        """Keep some."""


OwnId = Annotated[ItemId, Path(description="Id of the item.")]

ROUTERS = reading, writing = make_router("items", may_read), make_router("items", may_write)


@reading.get("/v1/items", response_model=ItemPage, summary="Items in the order of their ids")
async def get_items(
    request: Request,
    after: Annotated[ItemId | None, Query(description="The `next` of a page.")] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
    label: Annotated[LabelText | None, Query(description="Only items with this label.")] = None,
) -> Response:
    service = get_service(request)
    gallery = service.gallery
    page = partial(find_page, gallery.engine, gallery.labels_beside)
    return json_answer(await service.reads.run(lambda: page(after=after, limit=limit, label=label)))


@reading.get(
    "/v1/items/{item_id:path}/picture",
    response_class=Response,
    responses={**problems(404), 200: {**PICTURES, "description": "A small picture."}},
    summary="The picture of an item",
)
async def get_picture(
    request: Request,
    item_id: OwnId,
    vector: Annotated[bool, Query(include_in_schema=False)] = False,  # noqa: FBT002 - of the address
) -> Response:
    if not request.scope["raw_path"].endswith(b"/picture"):
        # With %2F before it, the word is the end of an id.
        return await get_item(request, f"{item_id}/picture", vector)
    service = get_service(request)
    ids = parse_ids([item_id], service.gallery.engine)
    return await service.reads.run(lambda: answer_picture(service.gallery, ids))


@reading.get(
    "/v1/items/{item_id:path}", response_model=Item, responses=problems(404), summary="One item"
)
async def get_item(
    request: Request,
    item_id: OwnId,
    vector: Annotated[bool, Query(description="Whether to show its vector.")] = False,  # noqa: FBT002 - of the address
) -> Response:
    service = get_service(request)
    ids = parse_ids([item_id], service.gallery.engine)
    return json_answer(await service.reads.run(lambda: _item(service, ids, with_vector=vector)))


@writing.post(
    "/v1/items",
    status_code=201,
    response_model=Added,
    responses=problems(400, 409, 415, 501),
    openapi_extra=describe_body(NewItems, NEW),
    summary="Add items, all or none",
)
async def add_items(request: Request) -> Response:
    service = get_service(request)
    new = (await read_many(request, NewItems)).items
    check_batch(len(new), service)
    labels = parse_labels([item.label for item in new], service.gallery.engine)
    names = [item.id for item in new]
    keeps = isinstance(service.gallery.engine, KeepsLooks)
    images = [None if item.image is None else decode_image(item.image) for item in new]
    vectors = await _vectors_of(service, new, images, keeps=keeps)
    pictures = await service.reads.run(lambda: [_small(image) for image in images] if keeps else [])

    def add() -> AnyArray:
        if not keeps:
            return service.gallery.add(vectors, labels, names)
        texts = [item.text for item in new]
        return service.gallery.add_with_looks(vectors, labels, names, pictures, texts)

    return json_answer({"ids": show_names(await service.write(add))}, 201)


@writing.post(
    "/v1/items/relabel",
    response_model=Changed,
    responses=problems(400, 404, 409, 415),
    openapi_extra=describe_body(Relabelling, OTHER_LABEL),
    summary="Give items another label, all or none",
)
async def relabel_items(request: Request) -> Response:
    change = await read_many(request, Relabelling)
    return await _relabel(get_service(request), change.ids, change.label)


@writing.post(
    "/v1/items/remove",
    response_model=Changed,
    responses=problems(400, 404, 409, 415),
    openapi_extra=describe_body(Removal, GONE),
    summary="Remove items, all or none",
)
async def remove_items(request: Request) -> Response:
    return await _change(request, (await read_many(request, Removal)).ids, "remove")


@writing.post(
    "/v1/items/restore",
    response_model=Changed,
    responses=problems(400, 404, 409, 415),
    openapi_extra=describe_body(Removal, GONE),
    summary="Undo the removal of items, all or none",
)
async def restore_items(request: Request) -> Response:
    return await _change(request, (await read_many(request, Removal)).ids, "restore")


@writing.post(
    "/v1/items/confirm",
    response_model=Changed,
    responses=problems(400, 404, 409, 415),
    openapi_extra=describe_body(Relabelling, RIGHT_LABEL),
    summary="Say that items are labelled rightly: the audit lists them no more",
)
async def confirm_items(request: Request) -> Response:
    service = get_service(request)
    given = await read_many(request, Relabelling)
    check_batch(len(given.ids), service)
    engine = service.gallery.engine
    ids, label = parse_ids(given.ids, engine), parse_labels([given.label], engine)
    return json_answer(
        {"changed": await service.write(lambda: service.gallery.confirm(ids, label))}
    )


@writing.post(
    "/v1/items/unconfirm",
    response_model=Changed,
    responses=problems(400, 404, 409, 415),
    openapi_extra=describe_body(Removal, GONE),
    summary="Take back that items are labelled rightly",
)
async def unconfirm_items(request: Request) -> Response:
    return await _change(request, (await read_many(request, Removal)).ids, "unconfirm")


@writing.patch(
    "/v1/items/{item_id:path}",
    response_model=Changed,
    responses=problems(400, 404, 409, 415),
    openapi_extra=describe_body(NewLabel, {"label": "egret"}),
    summary="Give an item another label",
)
async def relabel_item(request: Request, item_id: OwnId) -> Response:
    change = await read_body(request, NewLabel)
    return await _relabel(get_service(request), [item_id], change.label)


@writing.delete(
    "/v1/items/{item_id:path}",
    response_model=Changed,
    responses=problems(404, 409),
    summary="Remove an item",
)
async def remove_item(request: Request, item_id: OwnId) -> Response:
    return await _change(request, [item_id], "remove")


async def _vectors_of(
    service: RunningService, new: list[NewItem], images: list[bytes | None], *, keeps: bool
) -> AnyArray:
    """Vectors of new items, shape (n, dimension): those given, and of texts and images."""
    rows: dict[int, list[float]] = {}
    texts: dict[int, str] = {}
    encoded: dict[int, bytes] = {}
    for place, (item, image) in enumerate(zip(new, images, strict=True)):
        if item.vector is not None:
            rows[place] = item.vector
            if not keeps and (item.text is not None or image is not None):
                message = "This engine keeps no texts or pictures beside vectors. Leave them out."
                raise ProblemError(409, "no_looks", message)
        elif (item.text is None) == (image is None):
            raise ProblemError(
                422,
                "invalid_request",
                f"An item must have a vector, a text or an image. Item {place} has "
                f"{'none of them' if image is None else 'a text and an image, and no vector'}.",
            )
        elif image is not None:
            encoded[place] = image
        else:
            texts[place] = str(item.text)
    parts: list[AnyArray] = []
    if rows:
        parts.append(service.vectors(list(rows.values())))
    if texts:
        parts.append(await service.encode("text", list(texts.values())))
    if encoded:
        parts.append(await service.encode("image", list(encoded.values())))
    vectors: AnyArray = np.concatenate(parts)
    return vectors[np.argsort([*rows, *texts, *encoded])]


def _small(image: bytes | None) -> bytes | None:
    """A small picture of an image; 422 if it is none."""
    if image is None:
        return None
    address = Thumbnails(KEPT_SIDE).of(image)
    if address is None:
        raise ProblemError(422, "invalid_request", "An image of the items cannot be decoded.")
    return b64decode(address.partition(",")[2])


async def _relabel(service: RunningService, texts: list[str], label: str) -> Response:
    check_batch(len(texts), service)
    engine = service.gallery.engine
    ids, labels = parse_ids(texts, engine), parse_labels([label], engine)
    n_changed = await service.write(lambda: service.gallery.relabel(ids, labels))
    return json_answer({"changed": n_changed})


async def _change(
    request: Request, texts: list[str], change: Literal["remove", "restore", "unconfirm"]
) -> Response:
    service = get_service(request)
    check_batch(len(texts), service)
    ids = parse_ids(texts, service.gallery.engine)
    n_changed = await service.write(lambda: getattr(service.gallery, change)(ids))
    return json_answer({"changed": n_changed})


def _item(service: RunningService, ids: AnyArray, *, with_vector: bool) -> dict[str, Any]:
    stored = service.gallery.stored(ids)
    labels = service.gallery.labels_beside(ids) if stored.labels is None else stored.labels
    return {
        "id": show_names(ids)[0],
        "label": show_names(labels)[0],
        "vector": np.asarray(stored.vectors)[0].tolist() if with_vector else None,
        "text": texts_in(service.gallery.engine, ids).get(ids.tolist()[0]),
    }
