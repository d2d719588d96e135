"""A page of every address of the service, from its OpenAPI document."""

import json
from collections.abc import Iterator
from typing import Any

from nearsure.service import ServiceSettings, create_app

HEAD = """# REST

Written from the OpenAPI document that the service hands out at `/openapi.json`.
[The guide to the service](../service.md) says how to run it, and shows some of this at work."""
PROBLEMS = """## Problems

Every answer that is no success has a body of this form, in which `error` is for programs and
`message` for people:

```json
{"error": "no_such_item", "message": "The gallery holds no item 'x'."}
```"""
FIRST_PROBLEM = 400


def rest_reference() -> str:
    """The page, in Markdown."""
    document = create_app(ServiceSettings(gallery="gallery.sqlite")).openapi()
    schemas = document["components"]["schemas"]
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    parts = [HEAD]
    for path, method, operation in operations:
        parts += _operation(path, method, operation)
    parts += [PROBLEMS, _problems(operation for _, _, operation in operations)]
    parts.append("## What is sent and answered")
    for name, schema in sorted(schemas.items()):
        parts += _schema(name, schema)
    return "\n\n".join(part for part in parts if part) + "\n"


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"## {method.upper()} {path}"
    summary = operation["summary"]
    yield summary if summary.endswith("?") else f"{summary}."
    rows = [
        f"| `{each['name']}` | {_type(each['schema'])} | {_words(each, each['schema'])} |"
        for each in operation.get("parameters", [])
    ]
    if rows:
        yield "\n".join(["| in the address | type | |", "| --- | --- | --- |", *rows])
    for kind, said in operation.get("requestBody", {}).get("content", {}).items():
        yield f"Body: `{kind}`, {_type(said.get('schema', {}))}."
        if "example" in said:
            yield f"```json\n{json.dumps(said['example'])}\n```"
    rest = []
    for status, answer in operation["responses"].items():
        if _is_problem(status, answer):
            rest.append(status)
            continue
        kinds = [_type(said.get("schema", {})) for said in answer.get("content", {}).values()]
        yield f"Answer {status}: {', '.join(dict.fromkeys(kinds)) or 'no body'}."
    if rest:
        yield f"Otherwise {', '.join(rest)}: [problems](#problems)."


def _is_problem(status: str, answer: dict[str, Any]) -> bool:
    return int(status) >= FIRST_PROBLEM and "schemas/Problem" in json.dumps(answer)


def _problems(operations: Iterator[dict[str, Any]]) -> str:
    meanings = {
        status: answer["description"]
        for operation in operations
        for status, answer in operation["responses"].items()
        if _is_problem(status, answer)
    }
    rows = [f"| {status} | {_cell(meaning)} |" for status, meaning in sorted(meanings.items())]
    return "\n".join(["| status | |", "| --- | --- |", *rows])


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield schema.get("description", "")
    needed = schema.get("required", [])
    rows = [
        f"| `{field}` | {_type(said)} | {_words(said, said, needed=field in needed)} |"
        for field, said in schema.get("properties", {}).items()
    ]
    if rows:
        yield "\n".join(["| field | type | |", "| --- | --- | --- |", *rows])


def _words(said: dict[str, Any], schema: dict[str, Any], *, needed: bool = False) -> str:
    """What is said of a field, and whether it may be left out."""
    words = [_cell(said.get("description", ""))]
    words += ["required"] if needed or said.get("required") is True else []
    if schema.get("default") is not None:
        words.append(f"default `{json.dumps(schema['default'])}`")
    return "; ".join(word.rstrip(".") for word in words if word)


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(each) for each in schema[several])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    return "bytes" if schema.get("format") == "binary" else str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
