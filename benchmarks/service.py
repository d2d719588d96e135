"""The service under load: one client, 64 clients, and four times as many as may wait.

A gallery of 60,000 points of 128 numbers in an SQLite file, served by a process of its own; the
clients are another process on the same machine. Beside it stand the engine and the classifier
alone, without a service.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from urllib.request import urlopen

import numpy as np

from benchmarks.large_gallery import LargeGallery, make_large_gallery
from benchmarks.report import finish, note, say, seconds
from benchmarks.request_load import Load, ask_together
from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.sqlite import SqliteEngine
from nearsure.service import ServiceSettings, run_service

N_CLIENTS, N_QUERIES, ROUNDS, SECONDS, SINGLE_CALLS = 64, 512, 3, 3.0, 200
# A queue that four times as many clients overrun. They are few enough not to be what is measured:
# in a closed loop the time of an answer is their number, divided by what is answered in a second.
SHORT_QUEUE, EXCESS = 64, 4
SERVE = "from sys import argv; from benchmarks.service import serve; serve(*argv[1:])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args()
    gallery = make_large_gallery(arguments.points, N_QUERIES)
    requests = [request(query) for query in gallery.queries]
    with tempfile.TemporaryDirectory(prefix="nearsure-bench-") as folder:
        path = Path(folder) / "gallery.sqlite"
        fill(path, gallery)
        alone(path, gallery.queries)
        with service(path) as port:
            one, many = under_load(port, requests, arguments.seconds)
        with service(path, SHORT_QUEUE) as port:
            overloaded(port, requests, arguments.seconds, one, many)
    finish()


def fill(path: Path, gallery: LargeGallery) -> None:
    """Put the gallery into a file."""
    names = np.array([f"item-{i}" for i in range(len(gallery.labels))])
    labels = np.array([f"class-{label}" for label in gallery.labels])
    with SqliteEngine.create(path, gallery.vectors.shape[1]) as engine:
        time = seconds(lambda: engine.add(gallery.vectors, names, labels))
    print(f"      {len(names):,} points written in {time:.1f} s")


def alone(path: Path, queries: AnyArray) -> None:
    """Say what the engine and the classifier do without a service."""
    with SqliteEngine(path) as engine:
        classifier = NEDClassifier(engine=engine)
        print(f"      fit {seconds(classifier.fit_engine):.1f} s")
        k = classifier.n_neighbors_
        row("engine alone", partial(engine.search, k=k), queries)
        row("classifier alone", classifier.predict_with_confidence, queries)


def row(name: str, answer: Callable[[AnyArray], object], queries: AnyArray) -> None:
    """One line: one query at a time, and as many at once as there will be clients."""
    single = [seconds(partial(answer, queries[i : i + 1])) for i in range(SINGLE_CALLS)]
    starts = range(0, len(queries), N_CLIENTS)
    batched = [seconds(partial(answer, queries[i : i + N_CLIENTS])) for i in starts]
    line(f"{name}, one at a time", 1 / median(single), single)
    line(f"{name}, {N_CLIENTS} at a time", N_CLIENTS / median(batched), batched)


def line(name: str, rate: float, times: list[float]) -> None:
    """Queries in a second, and how long they took."""
    middle, last = 1e3 * np.quantile(times, [0.5, 0.99])
    print(f"      {name:<34} {rate:>8,.0f}/s   p50 {middle:7.2f} ms   p99 {last:7.2f} ms")


def under_load(port: int, requests: list[bytes], duration: float) -> tuple[Load, Load]:
    """One client and many in turns; the middle round of each."""
    ask_together(port, requests, N_CLIENTS, 1.0)
    rounds = [
        (
            ask_together(port, requests, 1, duration),
            ask_together(port, requests, N_CLIENTS, duration),
        )
        for _ in range(ROUNDS)
    ]
    for one, many in rounds:
        line("service, 1 client", one.rate, one.times(200))
        line(f"service, {N_CLIENTS} clients", many.rate, many.times(200))
        if set(one.durations) | set(many.durations) != {200}:
            sys.exit("some requests were not answered")
    one, many = sorted(rounds, key=lambda pair: pair[1].rate / pair[0].rate)[ROUNDS // 2]
    print(f"      the clients took {100 * many.cpu_seconds / many.seconds:.0f}% of a core")
    note("1 client, middle time", 1e3 * one.quantile(0.5), unit=" ms")
    note(f"{N_CLIENTS} clients, middle time", 1e3 * many.quantile(0.5), unit=" ms")
    note(f"{N_CLIENTS} clients, 99% of the times", 1e3 * many.quantile(0.99), unit=" ms")
    ratio = many.quantile(0.99) / many.quantile(0.5)
    say(f"{N_CLIENTS} clients, 99% of the times to the middle one", ratio, 2)
    say(f"{N_CLIENTS} clients, requests/s", many.rate, 1300, at_least=True, unit="/s")
    say(f"{N_CLIENTS} clients, requests/s to one client's", many.rate / one.rate, 5, at_least=True)
    return one, many


def overloaded(port: int, requests: list[bytes], duration: float, one: Load, many: Load) -> None:
    """Far more clients than may wait: what they get, and what is left when they have gone."""
    ask_together(port, requests, N_CLIENTS, 1.0)
    n_clients = EXCESS * SHORT_QUEUE
    # One more client in a process of its own, which does not wait for the others' turn.
    with ProcessPoolExecutor(1, get_context("spawn")) as elsewhere:
        elsewhere.submit(len, requests).result()
        visit = elsewhere.submit(ask_together, port, requests, 1, duration)
        crowd = ask_together(port, requests, n_clients, duration)
        visitor = visit.result()
    n_asked = sum(len(times) for times in crowd.durations.values())
    statuses = set(crowd.durations) | set(visitor.durations)
    if statuses - {200, 503}:
        sys.exit(f"some were answered neither 200 nor 503: {statuses}")
    line(f"overload, {n_clients} clients, answered", crowd.rate, crowd.times(200))
    line("overload, turned away with 503", crowd.count(503) / crowd.seconds, crowd.times(503))
    line("one more client, turned away", visitor.count(503) / visitor.seconds, visitor.times(503))
    print(f"      {100 * crowd.count(200) / n_asked:.0f}% of {n_asked:,} requests were answered")
    say("overload, answered/s to that of 64 clients", crowd.rate / many.rate, 0.5, at_least=True)
    # The crowd's own times hold its own waiting, too, and are the longer ones.
    say("overload, middle time of a 503", 1e3 * crowd.quantile(0.5, 503), 100, unit=" ms")
    after = ask_together(port, requests, 1, duration / 2)
    line("afterwards, 1 client", after.rate, after.times(200))
    say("afterwards, middle time to before", after.quantile(0.5) / one.quantile(0.5), 2)


def request(query: AnyArray) -> bytes:
    """A whole request, as a client of a page or a program sends it."""
    body = json.dumps({"vector": [round(float(number), 6) for number in query]}).encode()
    return (
        b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )


@contextmanager
def service(path: Path, largest_queue: int = ServiceSettings.largest_queue) -> Iterator[int]:
    """The service as a process of its own; gives its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVE, str(path), str(port), str(largest_queue)]
    process = subprocess.Popen(command)
    try:
        _wait_until_ready(port, process)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _wait_until_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = monotonic() + 120
    while monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
                if answer.status == 200:  # noqa: PLR2004 - ready
                    return
        except OSError:
            sleep(0.1)
    sys.exit("the service did not start")


def serve(path: str, port: str, largest_queue: str) -> None:
    """What the process does."""
    run_service(ServiceSettings(path, port=int(port), largest_queue=int(largest_queue)))


if __name__ == "__main__":
    main()
