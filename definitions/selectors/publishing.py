"""What a publish would change, told before it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Max

from agents.choices import ToolState
from agents.models import Agent, Environment, Grant, Tool, VirtualModel
from definitions.canonical import Definition
from definitions.comparison import Part, compare
from definitions.models import Version
from definitions.selectors import draft_of, open_draft, open_version, published


@dataclass(frozen=True, slots=True)
class Change:
    """One sentence about model or tools; ``kind`` is ``plus``, ``minus`` or ``swap``."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Current:
    """What the environment runs now."""

    number: int
    digest: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What runs now, what would run, the differences, and what speaks against it."""

    agent: Agent
    environment: Environment
    number: int
    digest: str
    again: bool
    current: Current | None
    changes: tuple[Change, ...]
    diff: tuple[Part, ...]
    warnings: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether the environment already runs exactly this definition under this number."""
        return self.current == Current(self.number, self.digest)


def preview_draft(agent: Agent, environment: Environment) -> Preview:
    """The saved draft against what *environment* runs. Raises DamagedContent."""
    draft = draft_of(agent)
    newest = Version.objects.filter(agent=agent).order_by("-number").first()
    if newest is not None and newest.digest == draft.digest:
        number = newest.number
    else:
        last = Version.objects.filter(agent=agent).aggregate(last=Max("number"))["last"]
        number = (last or 0) + 1
    return _preview(agent, environment, number, draft.digest, open_draft(draft), again=False)


def preview_version(version: Version, environment: Environment) -> Preview:
    """An existing version against what *environment* runs. Raises DamagedContent."""
    definition = open_version(version)
    return _preview(
        version.agent, environment, version.number, version.digest, definition, again=True
    )


def _preview(
    agent: Agent,
    environment: Environment,
    number: int,
    digest: str,
    definition: Definition,
    *,
    again: bool,
) -> Preview:
    running = published(agent.id, environment.id)
    before = None if running is None else open_version(running.version)
    current = None
    if running is not None:
        current = Current(running.version.number, running.version.digest)
    return Preview(
        agent=agent,
        environment=environment,
        number=number,
        digest=digest,
        again=again,
        current=current,
        changes=tuple(_changes(before, definition)),
        diff=tuple(compare(before.instructions, definition.instructions) if before else ()),
        warnings=tuple(_warnings(agent, environment, definition)),
    )


def _changes(before: Definition | None, after: Definition) -> Iterable[Change]:
    old = set() if before is None else set(before.tool_ids)
    new = set(after.tool_ids)
    tools = {
        tool.id: f"{tool.name} ({tool.effective_classification})"
        for tool in Tool.objects.filter(id__in=old ^ new).order_by("name")
    }
    for tool_id, label in tools.items():
        if tool_id in new:
            yield Change("plus", f"{label} can be called")
        else:
            yield Change("minus", f"{label} can no longer be called")
    model = None if before is None else before.virtual_model_id
    if model != after.virtual_model_id:
        yield Change("swap", f"The model is {_model(after.virtual_model_id)}{_instead(model)}")


def _model(model_id: UUID | None) -> str:
    found = _model_row(model_id)
    return "none" if found is None else found.name


def _model_row(model_id: UUID | None) -> VirtualModel | None:
    if model_id is None:
        return None
    return VirtualModel.objects.select_related("provider").filter(id=model_id).first()


def _instead(model_id: UUID | None) -> str:
    return "" if model_id is None else f" instead of {_model(model_id)}"


def _warnings(agent: Agent, environment: Environment, definition: Definition) -> Iterable[str]:
    where = environment.slug
    if not definition.instructions.strip():
        yield "The draft has no instructions yet."
    grants = Grant.objects.filter(agent=agent, environment=environment, revoked_at__isnull=True)
    model = _model_row(definition.virtual_model_id)
    if model is None:
        yield "The draft names no model yet."
    elif not model.enabled or not model.provider.enabled:
        yield f"The model {model.name} is disabled."
    elif not grants.filter(virtual_model=model).exists():
        yield f"The model {model.name} is not granted in {where}."
    granted = set(grants.exclude(tool=None).values_list("tool_id", flat=True))
    for tool in Tool.objects.filter(id__in=definition.tool_ids).order_by("name"):
        if tool.id not in granted:
            yield f"{tool.name} is not granted in {where}: it is left out there."
        elif tool.state != ToolState.ACCEPTED:
            yield f"{tool.name} is {tool.state}: it is left out until it is accepted."
