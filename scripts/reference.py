#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference from the sources of truth: the option table, the metric table, the CRD.

    reference.py OUT_DIR RUNTIME_BINARY OPERATOR_BINARY
"""

import pathlib
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent


def runtime_page(binary, what, title, intro):
    table = subprocess.run([binary, "reference", what], check=True, capture_output=True, text=True).stdout
    return f"# {title}\n\n{intro}\n\nThis page is generated; `make docs` writes it anew.\n\n{table.strip()}\n"


def fields(schema, path, rows):
    for name, prop in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        kind = prop.get("type", "any")
        if kind == "array":
            items = prop["items"]
            kind = f"list of {items.get('type', 'any')}"
            rows.append((here, kind, prop))
            fields(items, here + "[]", rows)
        else:
            rows.append((here, kind, prop))
            fields(prop, here, rows)


def rules(prop):
    parts = []
    for key, text in (("enum", "one of {}"), ("minimum", "at least {}"), ("maximum", "at most {}"),
                      ("maxLength", "at most {} characters"), ("maxItems", "at most {}"), ("default", "default {}")):
        if key in prop:
            value = prop[key]
            parts.append(text.format(", ".join(map(str, value)) if isinstance(value, list) else value))
    return "; ".join(parts)


def resource_page():
    crd = yaml.safe_load((ROOT / "crds/inferenceservices.yaml").read_text())
    version = crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    out = [f"# InferenceService ({crd['spec']['group']}/{version['name']})", "",
           schema.get("description", ""), "", "This page is generated; `make docs` writes it anew.", ""]
    for part in ("spec", "status"):
        rows = []
        fields(schema["properties"][part], part, rows)
        out += [f"## {part}", "", "| field | type | meaning | rules |", "| --- | --- | --- | --- |"]
        for path, kind, prop in rows:
            text = " ".join(prop.get("description", "").split()).replace("|", "\\|")
            out.append(f"| `{path}` | {kind} | {text} | {rules(prop)} |")
        out.append("")
    return "\n".join(out)


def main():
    out, runtime, operator = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    out.mkdir(parents=True, exist_ok=True)
    (out / "options.md").write_text(runtime_page(
        runtime, "options", "Options of penstock-runtime serve",
        "Each option is a flag, an environment variable and a key of the `--config` file; later wins: default, file, environment, flag."))
    (out / "metrics.md").write_text(runtime_page(
        runtime, "metrics", "Metrics of penstock-runtime",
        "Every series carries `model_name` and `engine`. Queue, batch and cache series exist from the moment a pod serves."))
    (out / "inferenceservice.md").write_text(resource_page())
    (out / "operator.md").write_text(runtime_page(
        operator, "options", "Options of penstock-operator",
        "Each option is a flag, an environment variable and a key of the `--config` file; later wins: default, file, environment, flag."))
    (out / "operator_metrics.md").write_text(runtime_page(
        operator, "metrics", "Metrics of penstock-operator",
        "Served at `/metrics` on `--health-port`, under the names that dashboards of Kubernetes controllers know, and our own."))


if __name__ == "__main__":
    main()
