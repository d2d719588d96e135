"""A page of every address of the service, from its OpenAPI document."""

import json
from typing import Any

from nearsure.service import ServiceSettings, create_app

HEAD = """# REST

Written from the OpenAPI document that the service hands out at `/openapi.json`.
[The guide to the service](../service.md) says how to run it. Every answer that is no success is
`{"error": ..., "message": ...}`.
"""


def rest_reference() -> str:
    """The page, in Markdown."""
    document = create_app(ServiceSettings(gallery="gallery.sqlite")).openapi()
    schemas = document["components"]["schemas"]
    parts = [HEAD]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(path, method, operation))
    parts.append("\n## What is sent and answered\n")
    parts += [_schema(name, schema) for name, schema in sorted(schemas.items())]
    return "\n".join(parts) + "\n"


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    lines = [f"\n## {method.upper()} {path}\n", operation.get("description", ""), ""]
    parameters = operation.get("parameters", [])
    if parameters:
        lines += ["| parameter | in | type | |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} "
            f"| {_cell(each.get('description', ''))} |"
            for each in parameters
        ]
        lines.append("")
    body = operation.get("requestBody", {}).get("content", {})
    lines += [f"Body: {kind}, {_type(said.get('schema', {}))}\n" for kind, said in body.items()]
    lines += ["| status | answer | |", "| --- | --- | --- |"]
    for status, answer in operation["responses"].items():
        kinds = [_type(said.get("schema", {})) for said in answer.get("content", {}).values()]
        lines.append(f"| {status} | {', '.join(kinds)} | {_cell(answer.get('description', ''))} |")
    return "\n".join(lines)


def _schema(name: str, schema: dict[str, Any]) -> str:
    lines = [f"### {name}\n", schema.get("description", ""), ""]
    properties = schema.get("properties", {})
    if properties:
        lines += ["| field | type | |", "| --- | --- | --- |"]
        needed = schema.get("required", [])
        for field, said in properties.items():
            words = [_cell(said.get("description", ""))]
            words += ["required"] if field in needed else []
            words += [f"default `{json.dumps(said['default'])}`"] if "default" in said else []
            lines.append(f"| `{field}` | {_type(said)} | {'; '.join(filter(None, words))} |")
        lines.append("")
    return "\n".join(lines)


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
    return str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
