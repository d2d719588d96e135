"""Changes a gallery until it is killed; started once, it forks a new writer for each order.

An order is a line of JSON on the standard input: the path, the index, a seed, how many things the
writer tells before it is killed, and how many seconds after them.
The answer is a line of JSON: all that the writer has told.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import EngineUnavailableError

DIMENSION = 8
LABELS = ("cat", "dog", "owl")
# Batches of a few points, and some that take many pages of the file.
SIZES = (1, 2, 5, 5, 120)
LARGEST = 300


def vectors_of(seed: int, n: int) -> AnyArray:
    """The vectors of a change, which are told by their seed alone."""
    return np.random.default_rng(seed).normal(size=(n, DIMENSION)).astype(np.float32)


def main() -> None:
    """Obey until the input ends."""
    warm_up()
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(told_until_killed(order)), flush=True)  # noqa: T201


def warm_up() -> None:
    """Load what the first change loads, once and not in each writer."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteEngine.create(f"{folder}/gallery.sqlite", DIMENSION) as engine,
    ):
        make(engine, {"do": "add", "ids": ["a"], "label": LABELS[0], "seed": 0})


def told_until_killed(order: dict[str, Any]) -> list[Any]:
    """Fork a writer, kill it, and return all that it told before."""
    reading, writing = os.pipe()
    writer = os.fork()
    if not writer:
        os.close(reading)
        try:
            change_for_ever(order, writing)
        except Exception:  # noqa: BLE001
            # Otherwise a writer that fails would look like one that was killed early.
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as told:
        # Counted, as a busy machine may need long for the first of them.
        first = "".join(told.readline() for _ in range(order["lines"]))
        time.sleep(order["seconds"])
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        return [json.loads(line) for line in (first + told.read()).splitlines()]


def change_for_ever(order: dict[str, Any], descriptor: int) -> None:
    """Announce a change, make it, acknowledge it; and so on."""

    def tell(message: object) -> None:
        os.write(descriptor, (json.dumps(message) + "\n").encode())

    own = random.Random(order["seed"])  # noqa: S311
    try:
        engine = SqliteEngine(order["path"], index=order["index"])
    except EngineUnavailableError as error:
        tell(str(error))
        return
    held = [own_id for portion in engine.scan() for own_id in portion.ids.tolist()]
    number = 0
    while True:
        number += 1
        change = drawn_change(own, held, f"{order['seed']}.{number}.")
        tell(change)
        make(engine, change)
        tell("done")
        if change["do"] == "add":
            held += change["ids"]
        elif change["do"] == "remove":
            held = [own_id for own_id in held if own_id not in set(change["ids"])]


def drawn_change(own: random.Random, held: list[str], prefix: str) -> dict[str, Any]:
    """What to do next."""
    n = own.choice(SIZES)
    kind = own.choice(["add", "add", "remove", "relabel"])
    if not held:
        kind = "add"
    if len(held) > LARGEST:
        kind = "remove"
    new = [f"{prefix}{i}" for i in range(n)]
    ids = new if kind == "add" else own.sample(held, min(n, len(held)))
    label = own.choice(LABELS)
    return {"do": kind, "ids": ids, "label": label, "seed": own.randrange(2**32)}


def make(engine: SqliteEngine, change: dict[str, Any]) -> None:
    """Make a change."""
    ids = np.array(change["ids"])
    labels = np.full(len(ids), change["label"])
    if change["do"] == "add":
        engine.add(vectors_of(change["seed"], len(ids)), ids, labels)
    elif change["do"] == "remove":
        engine.remove(ids)
    else:
        engine.relabel(ids, labels)


if __name__ == "__main__":
    main()
