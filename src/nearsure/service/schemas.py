"""What requests and answers look like, and how bodies are read; OpenAPI is made of these."""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from fastapi import Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat
from pydantic_core import to_json

from nearsure.report.document import LARGEST_INTEGER as LARGEST_COUNTED
from nearsure.service.errors import ProblemError

# Larger bodies are read in a thread, so that other requests need not wait.
LARGEST_AT_ONCE = 64 * 1024
# So many marks too many are parsed nevertheless: the message can then name the mistake.
TOLERATED = 64
PORTION = 64 * 1024
QUOTE = ord('"')
SCHEMAS = "#/components/schemas/"

Body = TypeVar("Body", bound=BaseModel)
# An id or a label. Beyond what a browser counts exactly, integers travel as text.
Label = Annotated[
    str | Annotated[int, Field(ge=-LARGEST_COUNTED, le=LARGEST_COUNTED)],
    Field(
        description="Text, or an integer; one beyond +-(2^53 - 1), which JSON readers such as "
        "browsers would round, as text. Send either as text."
    ),
]
# What an item may be called: printable, so that it can stand in an address and in a log.
ItemId = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
LabelText = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
# Lists stop at the first mistake: millions of them would take gigabytes to report.
LARGEST_VECTOR = 65_536
Vector = Annotated[
    list[FiniteFloat], Field(min_length=1, max_length=LARGEST_VECTOR, fail_fast=True)
]


def _whole(value: object) -> object:
    """2.0 is an integer to JSON Schema, though not to a strict reader."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, BeforeValidator(_whole)]


class Message(BaseModel):
    """Base of all requests and answers; unknown fields are refused, not ignored."""

    model_config = ConfigDict(extra="forbid")


class Problem(Message):
    """Every answer that is not a success: what was wrong, and what to do."""

    error: str
    message: str


QueryName = Annotated[
    str,
    Field(
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="By which a person who labels recent queries recognises it.",
    ),
]


class Query(Message):
    """Exactly one of vector, item and text."""

    vector: Vector | None = Field(None, examples=[[0.1, 0.7, 0.2]])
    item: ItemId | None = Field(
        None, description="An item of the gallery; it is left out of its own answer."
    )
    text: Annotated[str, Field(min_length=1, max_length=10_000)] | None = Field(
        None, description="Where a text encoder is configured."
    )
    name: QueryName | None = None
    neighbors: Count = Field(10, ge=0, le=1000, description="How many neighbours to show at most.")
    classes: Count = Field(5, ge=1, le=1000, description="How many classes to show at most.")


QueryText = Annotated[str, Field(min_length=1, max_length=10_000)]
Image = Annotated[str, Field(min_length=1, description="An image file in base64.")]


class BatchQuery(Message):
    """Several at once: exactly one of vectors, texts and images."""

    vectors: Annotated[list[Vector], Field(min_length=1, fail_fast=True)] | None = None
    texts: Annotated[list[QueryText], Field(min_length=1, fail_fast=True)] | None = Field(
        None, description="Where a text encoder is configured."
    )
    images: Annotated[list[Image], Field(min_length=1, fail_fast=True)] | None = Field(
        None, description="In base64, where an image encoder is configured."
    )
    names: Annotated[list[QueryName], Field(fail_fast=True)] | None = Field(
        None, description="As many as vectors, texts or images."
    )
    neighbors: Count = Field(0, ge=0, le=1000)
    classes: Count = Field(1, ge=1, le=1000)


class ClassShare(Message):
    """A class and its probability."""

    label: Label
    probability: float


class NeighborShown(Message):
    """One of the nearest gallery items, and its share of the vote in [0, 1]."""

    id: Label
    label: Label
    sq_distance: float
    share: float
    text: str | None = Field(
        None,
        description="What it was made of, its first 300 letters; only of a gallery that keeps "
        "texts.",
    )


PromiseState = Literal["holds", "adjusted", "withdrawn"]


class Answer(Message):
    """Label of a query, its confidence, and the nearest gallery items."""

    label: Label
    confidence: float = Field(description="Probability that the label is right, in [0, 1].")
    accepted: bool | None = Field(
        description="Whether confidence reaches the threshold in use, as far as its promise "
        "stands; null if none is set."
    )
    promise: PromiseState | None = Field(
        description="Whether recent queries are like the gallery, so that the promise of the "
        "threshold holds; whether a stricter one is used for them; or whether nothing can be "
        "promised and nothing is accepted. null if nothing is promised: no threshold, one set as a "
        "number, or none that reaches the precision."
    )
    verdict: Literal["known", "ambiguous", "unknown"] | None = Field(
        description="null unless unknown queries are expected."
    )
    p_known: float | None
    p_neighbors: float | None = Field(
        description="Probability of the label by the neighbours alone, 0 if none is of its class; "
        "null where they alone answer."
    )
    p_head: float | None = Field(
        description="Probability of the label by what its class as a whole looks like, alone; null "
        "where the neighbours alone answer, and for a class that came after the fit."
    )
    classes: list[ClassShare]
    neighbors: list[NeighborShown]
    model: int = Field(description="Number of the fit that answered; it grows with each refit.")


class BatchAnswer(Message):
    """One answer for each vector, text or image."""

    answers: list[Answer]


class Neighborhood(Message):
    """The gallery items nearest to a query."""

    neighbors: list[NeighborShown]


class Compared(Message):
    """Exactly one of vector, item, text and image."""

    vector: Vector | None = Field(None, examples=[[0.1, 0.7, 0.2]])
    item: ItemId | None = Field(None, description="An item of the gallery.")
    text: Annotated[str, Field(min_length=1, max_length=10_000)] | None = Field(
        None, description="Where a text encoder is configured."
    )
    image: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="In base64, where an image encoder is configured."
    )


class PairQuery(Message):
    """Two to compare."""

    first: Compared
    second: Compared
    base_rate: Annotated[FiniteFloat, Field(gt=0, lt=1)] = Field(
        0.5, description="Share of same pairs among those that are compared."
    )


MOST_PLACED = 100


class Placing(Message):
    """Queries and items to be placed on the map."""

    points: Annotated[list[Compared], Field(min_length=1, max_length=MOST_PLACED)]


class Place(Message):
    """Coordinates on the map."""

    x: float
    y: float


class Places(Message):
    """Of each point, in their order."""

    places: list[Place]


class Comparison(Message):
    """Whether two are of one class."""

    probability: float = Field(description="That they are of one class, for the base rate.")
    base_rate: float
    sq_distance: float
    accepted: bool | None = Field(
        description="Whether they may be taken for the same, so that at most 1% of different pairs "
        "are accepted, with about 95% certainty if resemblance is spread over classes; null if the "
        "gallery has too few classes to promise it."
    )
    sentence: str = Field(description="What is promised, and by which pairs.")
    model: int = Field(description="Number of the fit whose points it was learned from.")


class NewItem(Message):
    """A labelled vector, or a text or an image to be encoded; without an id it is given one."""

    id: ItemId | None = None
    label: LabelText
    vector: Vector | None = Field(
        None, description="Without it, the text or the image is encoded, where there is an encoder."
    )
    text: QueryText | None = Field(
        None, description="Kept with the item, beside a vector, too, by an .sqlite gallery."
    )
    image: Image | None = Field(
        None, description="In base64; kept as a small picture, as a text is."
    )


class NewItems(Message):
    """Added all or none."""

    items: Annotated[list[NewItem], Field(min_length=1, fail_fast=True)]


class Added(Message):
    """The ids of the new items, in their order."""

    ids: list[Label]


class Item(Message):
    """An item of the gallery."""

    id: Label
    label: Label
    vector: list[float] | None = None
    text: str | None = Field(
        None,
        description="What it was made of, if that is kept; in a page of items its first 300 "
        "letters.",
    )


class ItemPage(Message):
    """Some items in the order of their ids; `next` continues."""

    items: list[Item]
    next: str | None
    total: int


class NewLabel(Message):
    """The new label of an item."""

    label: LabelText


class Relabelling(Message):
    """Several items at once, all or none."""

    ids: Annotated[list[ItemId], Field(min_length=1, fail_fast=True)]
    label: LabelText


class Removal(Message):
    """Several items at once, all or none."""

    ids: Annotated[list[ItemId], Field(min_length=1, fail_fast=True)]


class Changed(Message):
    """How many items a change touched."""

    changed: int


class Model(Message):
    """The fit that answers."""

    model: int
    size: int
    n_classes: int
    dimension: int
    k: int
    rule: str
    head: Literal["means", "logistic"] | None = Field(
        description="Model of whole classes, used beside the neighbours."
    )
    head_choice: str | None = Field(description="Why, in a sentence; null where nothing was tried.")
    metric: str
    temperature: float | None
    unknown_share: float | None
    engine: dict[str, str | int | float | bool | None]
    share_changed: float = Field(description="Share of the gallery that changed since the fit.")
    encoder: Literal["image", "text"] | None
    threshold: float | None = Field(
        description="From which confidence answers are accepted now; see /v1/promise."
    )
    writable: bool = Field(description="Whether the token of this request may change anything.")


class RefitState(Message):
    """Whether a fit is under way, and how the last one ended."""

    state: Literal["idle", "running", "failed"]
    model: int
    message: str | None = None


class Threshold(Message):
    """From which confidence answers are accepted."""

    threshold: float | None = Field(description="null: nothing can be accepted at this target.")
    precision: float | None = Field(description="The target it was chosen for, if any.")
    sentence: str


class NewThreshold(Message):
    """At most one: a confidence, or a target precision; neither: no threshold."""

    threshold: Annotated[FiniteFloat, Field(ge=0, le=1)] | None = None
    precision: Annotated[FiniteFloat, Field(gt=0, lt=1)] | None = None


class Range(Message):
    """From low to high."""

    low: float
    high: float


class Promise(Message):
    """What recent queries have shown about the promise of the threshold in use."""

    state: PromiseState | None = Field(description="As in answers.")
    sentence: str
    reasons: list[str] = Field(description="How recent queries differ from the others.")
    compared_with: Literal["gallery", "labelled queries"] = Field(
        description="The others: queries that were labelled, once there are any."
    )
    threshold: float | None = Field(
        description="From which confidence answers are accepted now; null: none is."
    )
    accuracy: Range | None = Field(
        description="Where the share of right answers should lie; estimated if queries differ."
    )
    n_queries: int = Field(description="How many queries were looked at.")
    checked: str | None = Field(description="When, as ISO 8601; null before the first check.")
    window: int = Field(description="Recent queries that are kept now.")


class ProposedQuery(Message):
    """A recent query that is worth a label."""

    key: int
    name: str | None
    text: str | None
    picture: str | None = Field(description="A small picture as a data: address.")
    answer: Answer


class ProposedQueries(Message):
    """A fair sample of recent queries, spread over confidence and classes."""

    queries: list[ProposedQuery]
    window: int = Field(description="Recent queries that they were chosen from.")


class LabelledQuery(Message):
    """A query and its true label: exactly one of key and vector."""

    key: Annotated[Count, Field(ge=0)] | None = Field(None, description="Key of a recent query.")
    vector: Vector | None = None
    label: LabelText | None = Field(
        description="null if it is of no class of the gallery, where such queries are expected."
    )


class LabelledQueries(Message):
    """Beside those that were labelled before; 20 or more in all."""

    queries: Annotated[list[LabelledQuery], Field(min_length=1, fail_fast=True)]


class Labels(Message):
    """What was learned from labelled queries, and what can be promised now."""

    n_labels: int
    n_right: int = Field(description="How many of them were answered correctly.")
    mean_before: float | None = Field(description="Mean confidence by the gallery alone.")
    mean_after: float | None = Field(description="Mean confidence now.")
    sentence: str
    promises: list[Threshold] = Field(description="For some precisions; empty without labels.")
    model: int


class InTheMaking(Message):
    """The document is being made; ask again after Retry-After seconds."""

    status: Literal["making"]


class Status(Message):
    """Alive or ready, or why not."""

    status: Literal["ok", "starting", "stopping", "unavailable"]
    reason: str | None = Field(None, description="Why the gallery is unavailable.")


# All bodies of requests.
BODIES = (
    Query,
    BatchQuery,
    PairQuery,
    Placing,
    NewItems,
    NewLabel,
    Relabelling,
    Removal,
    NewThreshold,
    LabelledQueries,
)


async def read_body(
    request: Request, kind: type[Body], *, rows: int = 1, dimension: int = 0
) -> Body:
    """The body of a request as a model; a `ValidationError` if it does not fit.

    Parameters
    ----------
    request : Request
        Whose body it is.
    kind : type
        What it should be.
    rows, dimension : int
        Vectors, items or ids that it may hold, and numbers of each. What holds far more is refused
        before it is parsed; how many there are exactly is for the caller to check.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() not in ("application/json", ""):
        raise ProblemError(
            415, "unsupported_media_type", "The body must be JSON: content-type: application/json."
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ProblemError(
            415, "unsupported_encoding", "The body must not be compressed. Send it as it is."
        )
    body = await request.body()

    def read() -> Body:
        check_parts(body, rows, dimension)
        # Strictly: text or true in the place of a number is a mistake of the client, no number.
        return kind.model_validate_json(body, strict=True)

    return read() if len(body) <= LARGEST_AT_ONCE else await asyncio.to_thread(read)


def check_parts(body: bytes, rows: int, dimension: int) -> None:
    """An error if JSON has far more parts than so many rows need.

    Two million lists of one number take seconds and a gigabyte to parse, and no other request is
    answered meanwhile; their brackets are counted in milliseconds.
    """
    most = {
        # A row is an object with a vector at most, and has five keys and four texts.
        b"[": rows + TOLERATED,
        b"{": rows + TOLERATED,
        b":": 5 * rows + TOLERATED,
        b'"': 2 * (9 * rows + TOLERATED),
        b",": rows * (dimension + 5) + LARGEST_VECTOR,
    }
    # A short body has no room for too many commas, and need not be searched for them.
    if all(len(body) <= limit or body.count(mark) <= limit for mark, limit in most.items()):
        return
    # Perhaps they stand in text, where they mean nothing.
    counts = dict.fromkeys(most, 0)
    for part in outside_text(body):
        for mark, limit in most.items():
            counts[mark] += part.count(mark)
            if counts[mark] > limit:
                raise _too_many_parts(rows)


def outside_text(body: bytes, portion: int = PORTION) -> Iterator[bytes]:
    """JSON without what stands between quotes, in portions; quotes themselves are left.

    What follows a mistake may be cut in the wrong places: no parser comes so far.

    Examples
    --------
    >>> b"".join(outside_text(b'{"a, b": ["[1]", 2]}'))
    b'{"": ["", 2]}'
    """
    # Without what looks like the end of a text and is none.
    letters = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    n_quotes = 0
    for start in range(0, len(letters), portion):
        part = letters[start : start + portion]
        is_quote = part == QUOTE
        so_far = n_quotes + np.cumsum(is_quote)
        n_quotes = int(so_far[-1])
        yield part[is_quote | (so_far % 2 == 0)].tobytes()


def _too_many_parts(rows: int) -> ProblemError:
    if rows == 1:
        return ProblemError(
            422,
            "invalid_request",
            "body: It has far more lists, names or values than it may have. Send one query or "
            "change at a time.",
        )
    return ProblemError(
        422,
        "batch_too_large",
        f"A request may have {rows} vectors or items. Got far more, or more than belongs in them: "
        "send several requests.",
    )


def describe_body(kind: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI description of a body that `read_body` reads."""
    content = {"schema": {"$ref": f"{SCHEMAS}{kind.__name__}"}, "example": example}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def json_answer(document: object, status: int = 200) -> Response:
    """A JSON answer of a document that need not be checked."""
    return Response(to_json(document), status, media_type="application/json")
