"""What every refusal of the service looks like."""

from typing import Any

INSIDE = ("Traceback", "site-packages", "nearsure/", ".py", "sqlite", "keeper", "dbname")


def refused(answer: Any, *statuses: int) -> dict[str, str]:  # noqa: ANN401
    """The problem of an answer, which tells nothing of the inside."""
    assert answer.status_code in statuses, answer.text
    assert answer.headers["content-type"] == "application/json"
    problem: dict[str, str] = answer.json()
    assert set(problem) == {"error", "message"}
    assert len(problem["message"]) < 1000
    for inside in INSIDE:
        assert inside not in answer.text
    return problem
