"""What a task's function accepts."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from django_pgjobs.compat import AnyTask


class Signature:
    """What a task's function accepts, in the form that is quick to check."""

    def __init__(self, function: Any, takes_context: bool) -> None:
        self.full = inspect.signature(function)
        parameters = list(self.full.parameters.values())
        # What the worker passes before the arguments of the job.
        self.first: tuple[object, ...] = ()
        if takes_context:
            self.first = (None,)
            parameters = parameters[1:]
        self.text = str(self.full.replace(parameters=parameters))
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self.is_simple = all(parameter.kind in named for parameter in parameters)
        self.names = frozenset(parameter.name for parameter in parameters)
        required = {p.name for p in parameters if p.default is inspect.Parameter.empty}
        positional = [p.name for p in parameters if p.kind is named[0]]
        # For each number of positional arguments: which parameters they fill, which they leave.
        self.filled = [frozenset(positional[:count]) for count in range(len(positional) + 1)]
        self.missing = [required - filled for filled in self.filled]

    def accepts(self, count: int, names: Iterable[str]) -> bool:
        """Is a call with *count* positional arguments and these keywords certain to fit?"""
        if not self.is_simple or count >= len(self.filled):
            return False
        given = set(names)
        return given.isdisjoint(self.filled[count]) and self.missing[count] <= given <= self.names


@lru_cache(maxsize=4096)
def signature_of(function: Any, takes_context: bool) -> Signature:
    """Return the signature of a task's function, without its context argument."""
    return Signature(function, takes_context)


def check_signature(task: AnyTask, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError if the task's function cannot be called with these arguments."""
    signature = signature_of(task.func, task.takes_context)
    if signature.accepts(len(args), kwargs):
        return
    try:
        signature.full.bind(*signature.first, *args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"{task.module_path}{signature.text} cannot be called with the arguments given: "
            f"{error}."
        ) from None


def named_arguments(task: AnyTask, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by name, defaults included; *args, **kwargs flattened."""
    signature = signature_of(task.func, task.takes_context)
    bound = signature.full.bind(*signature.first, *args, **kwargs)
    bound.apply_defaults()
    named: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[len(signature.first) :]:
        kind = signature.full.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named |= value
        elif kind is not inspect.Parameter.VAR_POSITIONAL or value:
            named[name] = list(value) if kind is inspect.Parameter.VAR_POSITIONAL else value
    return named


def default_arguments(task: AnyTask) -> dict[str, Any]:
    """Return the defaults of a task's arguments by name."""
    signature = signature_of(task.func, task.takes_context)
    parameters = list(signature.full.parameters.values())[len(signature.first) :]
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def arguments_by_name(task: AnyTask, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments given in a call as keyword arguments, without defaults.

    Raise TypeError if they do not fit, or one has no name.
    """
    check_signature(task, args, kwargs)
    signature = signature_of(task.func, task.takes_context)
    positional = list(signature.full.parameters.values())[len(signature.first) :][: len(args)]
    names = [p.name for p in positional if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if len(names) < len(args):
        raise TypeError(
            f"{task.module_path}{signature.text} was called with positional arguments that have "
            "no names, so they cannot be merged."
        )
    return dict(zip(names, args, strict=True)) | dict(kwargs)
