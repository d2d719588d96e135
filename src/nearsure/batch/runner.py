"""Run tasks in threads, in processes or on a dask cluster, and merge their results.

What is sent is the name of a function, with strings and numbers; queries are the one exception.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Literal, Protocol

from nearsure.arrays import AnyArray
from nearsure.engines.registry import redacted
from nearsure.errors import InvalidInputError, NearsureError, PartitionsFailedError
from nearsure.extras import require


class Cluster(Protocol):
    """What is needed of a distributed.Client."""

    def get_executor(self, *, pure: bool) -> Executor:
        """The workers, as `concurrent.futures` has them."""

    def scatter(self, data: Any, *, hash: bool) -> Any:  # noqa: A002, ANN401
        """A future of data that is sent to workers once."""


Scheduler = Literal["threads", "processes", "synchronous"] | Cluster
LOCAL = ("threads", "processes", "synchronous")
PURPOSE = "Work on partitions"

Job = dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """In place of the result of a partition that went wrong.

    Parameters
    ----------
    name : str
        The partition.
    reason : str
        What went wrong, without secrets.
    """

    name: str
    reason: str


def run_each(
    function: Callable[[Job], Any],
    jobs: Sequence[tuple[str, Job]],
    scheduler: Scheduler,
    description: str,
) -> list[Any]:
    """The result of each job, in their order; a `Failure` for one that went wrong.

    Parameters
    ----------
    function : callable
        A function of a module, which is given a job.
    jobs : sequence of (str, dict)
        Name of the partition, and the job in JSON's types.
    scheduler : {"threads", "processes", "synchronous"} or distributed.Client
        What runs them.
    description : str
        Stands before the progress bar, which is shown on a terminal alone.
    """
    results = dict(_run(function, jobs, scheduler, description))
    return [results[number] for number in range(len(jobs))]


def run_merged(
    function: Callable[[Job, AnyArray], Any],
    jobs: Sequence[tuple[str, Job]],
    queries: AnyArray,
    *,
    merge: Callable[[Any, Any], Any],
    scheduler: Scheduler,
    description: str,
) -> Any:  # noqa: ANN401
    """All results, merged in the order in which they arrive, so that few are held at a time.

    Parameters
    ----------
    function : callable
        A function of a module, which is given a job and the queries.
    jobs : sequence of (str, dict)
        As of `run_each`, at least one.
    queries : array of shape (n, dimension)
        What all jobs are about.
    merge : callable
        Makes one result of two, the same in any order.
    scheduler, description
        As of `run_each`.

    Raises
    ------
    PartitionsFailedError
        If a job went wrong, as all of them are needed.
    """
    shared = queries if isinstance(scheduler, str) else scheduler.scatter(queries, hash=False)
    merged: Any = None
    failures: dict[int, Failure] = {}
    for number, result in _run(function, jobs, scheduler, description, shared):
        if isinstance(result, Failure):
            failures[number] = result
        elif merged is None:
            merged = result
        elif not failures:
            merged = _attempt(merge, "the merge of results", merged, result)
            if isinstance(merged, Failure):
                failures[len(jobs)] = merged
    if failures:
        raise partitions_failed([failures[number] for number in sorted(failures)], len(jobs))
    return merged


def partitions_failed(failures: Sequence[Failure], n_partitions: int) -> PartitionsFailedError:
    """The error that lists partitions that went wrong."""
    reasons = {failure.name: failure.reason for failure in failures}
    listed = "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
    return PartitionsFailedError(
        f"{len(reasons)} of {n_partitions} partitions failed: fix what is wrong and start again."
        f"\n{listed}",
        reasons,
    )


def require_all(results: list[Any]) -> list[Any]:
    """The results, or an error if one of them is a `Failure`."""
    failures = [result for result in results if isinstance(result, Failure)]
    if failures:
        raise partitions_failed(failures, len(results))
    return results


def check_scheduler(scheduler: Scheduler) -> None:
    """Raise an error unless this can run anything and the extra is installed."""
    known = scheduler in LOCAL if isinstance(scheduler, str) else hasattr(scheduler, "get_executor")
    if not known:
        raise InvalidInputError(
            f"scheduler must be one of {', '.join(map(repr, LOCAL))} or a distributed.Client. "
            f"Got {scheduler!r} instead."
        )
    # Before the reader of Parquet files misses it, which would name a smaller extra.
    require("pyarrow.parquet", extra="batch", purpose=PURPOSE)


def _run(
    function: Callable[..., Any],
    jobs: Sequence[tuple[str, Job]],
    scheduler: Scheduler,
    description: str,
    *shared: Any,  # noqa: ANN401
) -> Iterator[tuple[int, Any]]:
    """The place of each job among all, and its result, in the order in which they arrive."""
    tqdm = require("tqdm", extra="batch", purpose=PURPOSE)
    with tqdm.tqdm(total=len(jobs), desc=description, disable=None) as bar:
        if scheduler == "synchronous":
            for number, (name, job) in enumerate(jobs):
                yield number, _attempt(function, name, job, *shared)
                bar.update()
            return
        with _open_executor(scheduler) as executor:
            places = {
                executor.submit(_attempt, function, name, job, *shared): number
                for number, (name, job) in enumerate(jobs)
            }
            try:
                for future in as_completed(places):
                    # Not kept here, so that a result is released as soon as it is merged.
                    number = places.pop(future)
                    yield number, _result(future, jobs[number][0])
                    bar.update()
            finally:
                # An interrupt ends the work on a cluster, too.
                for future in places:
                    future.cancel()


def _open_executor(scheduler: Scheduler) -> Executor:
    if not isinstance(scheduler, str):
        # Not pure: a call with the same arguments later on may find other files.
        return scheduler.get_executor(pure=False)
    dask_system = require("dask.system", extra="batch", purpose=PURPOSE)
    config = require("dask.config", extra="batch", purpose=PURPOSE)
    n_workers: int = config.get("num_workers", None) or dask_system.CPU_COUNT
    if scheduler == "threads":
        return ThreadPoolExecutor(n_workers)
    return ProcessPoolExecutor(n_workers, get_context("spawn"))


def _attempt(function: Callable[..., Any], name: str, *arguments: Any) -> Any:  # noqa: ANN401
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other partitions go on
        return Failure(name, _reason(error))


def _result(future: Future[Any], name: str) -> Any:  # noqa: ANN401
    """The result of a call, or why the workers have none, although no call raises an error."""
    try:
        return future.result()
    except BrokenExecutor as error:
        raise NearsureError(
            "A worker process died: it was killed, or memory was short. What is finished is "
            "kept; start again, with fewer workers or smaller batches."
        ) from error
    except CancelledError:
        return Failure(name, "The cluster lost it (cancelled).")
    except Exception as error:  # noqa: BLE001 - such as KilledWorker
        return Failure(name, _reason(error))


def _reason(error: BaseException) -> str:
    own = isinstance(error, NearsureError)
    return redacted(str(error) if own else f"{type(error).__name__}: {error}")
