"""The JSON Schemas that the package ships, and values checked against them."""

import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from skuwise.__main__ import main


def schema(name: str) -> dict[str, Any]:
    """The schema `name` (advice, card, doctor, fleet-plan, showback) of the first version."""
    return json.loads(files("skuwise.advisor.show").joinpath("schema", f"{name}-1.schema.json").read_text("utf-8"))


def validate(value: object, name: str) -> None:
    jsonschema.Draft202012Validator(schema(name), format_checker=jsonschema.FormatChecker()).validate(value)


def advised(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The advice that the command gives as JSON, by its schema."""
    assert main(["advise", *arguments, "--format", "json", "--no-ledger"]) == 0
    advice = json.loads(capsys.readouterr().out)
    validate(advice, "advice")
    return advice
