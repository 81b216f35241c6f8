"""Read the fields of one rubric file, strictly: every refusal names the file, the place, the rule and the value."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import yaml

from rangeline.errors import ModelLoadError
from rangeline.judge.coordinates import Example


class StrictLoader(yaml.BaseLoader):
    """Makes strings only, so that the levels yes and no stay words, and refuses repeated keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping, refusing a key that stands twice."""
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                problem = f"key '{key}' occurs twice"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_mapping(node, deep=deep)


class RubricReader:
    """Reads fields of one file; knows where it stands, for messages."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = "rubric"
        self.template = "{question}"

    def refuse(self, name: str, rule: str, value: Any) -> NoReturn:
        """Raise the error that names file, place, rule and value."""
        msg = f"'{name}' must {rule}; got {value!r} ({self.source}, {self.at}). Correct the rubric file."
        raise ModelLoadError(msg)

    def fields(self, data: Any, *, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> Mapping[str, Any]:
        """Return a mapping that has the required keys and none beyond the optional ones."""
        if not isinstance(data, dict):
            self.refuse(self.at, "be a mapping", data)
        for name in required:
            if name not in data:
                self.refuse(name, "be given", None)
        for name in data:
            if name not in (*required, *optional):
                self.refuse(name, f"be one of {[*required, *optional]}", data[name])
        fields: Mapping[str, Any] = data
        return fields

    def text(self, fields: Mapping[str, Any], name: str) -> str:
        """Return a text that is not blank."""
        value = fields[name]
        if not isinstance(value, str) or not value.strip():
            self.refuse(name, "be a text", value)
        return str(value)

    def template_of(self, fields: Mapping[str, Any]) -> str:
        """Return the text around every question."""
        template = self.text(fields, "template") if "template" in fields else "{question}"
        if template.count("{question}") != 1:
            self.refuse("template", "hold {question} exactly once", template)
        return template

    def question(self, fields: Mapping[str, Any]) -> str:
        """Return a question inside its template; it shows the completion once."""
        own = self.text(fields, "question")
        question = own if self.template == "{question}" else self.template.replace("{question}", own.rstrip("\n"))
        if question.count("{completion}") != 1:
            self.refuse("question", "hold {completion} exactly once", question)
        return question

    def cuts(self, cuts: Any) -> tuple[float, ...]:
        """Return strictly increasing cuts."""
        rule = "be strictly increasing shares in (0, 1]"
        if not isinstance(cuts, list) or not cuts:
            self.refuse("cuts", rule, cuts)
        values = [self.number("cuts", cut, low=0, high=1, rule=rule) for cut in cuts]
        if any(high <= low for low, high in zip([0.0, *values], values, strict=False)):
            self.refuse("cuts", rule, values)
        return tuple(values)

    def examples(self, fields: Mapping[str, Any], reply_of: Callable[[str], str | None]) -> tuple[Example, ...]:
        """Return examples, their replies as the judge would write them."""
        items = fields.get("examples", [])
        if not isinstance(items, list):
            self.refuse("examples", "be a list", items)
        found = []
        for item in items:
            parts = self.fields(item, required=("prompt", "completion", "reply"))
            reply = reply_of(self.text(parts, "reply"))
            if reply is None:
                self.refuse("reply", "be a level of the coordinate, or a score in [0, 1]", parts["reply"])
            found.append(Example(prompt=str(parts["prompt"]), completion=str(parts["completion"]), reply=reply))
        return tuple(found)

    def number(self, name: str, value: Any, *, low: float, high: float, rule: str) -> float:
        """Return a finite number within bounds."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not low <= number <= high or number == float("inf"):
            self.refuse(name, rule, value)
        return number
