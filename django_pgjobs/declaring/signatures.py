"""What a task's function accepts, and the names of what it is called with.

A decorator may call the function it wraps with other arguments than its own: it may add a client,
or take a flag away. So what a call must fit is the signature of the outermost function alone. Names
and defaults that it leaves open, behind `*args` or `**kwargs`, are those of the functions that it
wraps (`__wrapped__`), as far as the call fits those.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any, NamedTuple

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.option_names import SYNONYMS

Parameter = inspect.Parameter
POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
# Stands for the context, which the worker passes before the arguments of the job.
CONTEXT = object()
# Stands for the names of positional arguments that a decorator takes as *args.
NAMELESS = "*args"


class Arguments(NamedTuple):
    """The arguments of a call: those with names, those without, and the name of these.

    There is no such name if a decorator may pass them to any parameters.
    """

    named: dict[str, Any]
    rest: list[Any]
    name_of_rest: str | None = None


class Signature:
    """What a task's function accepts, in the form that is quick to check."""

    def __init__(self, function: Any, takes_context: bool) -> None:
        # The function's own, then those of the functions that it wraps, while names are left open.
        self.levels = _levels(function)
        self.full = self.levels[0]
        # What the worker passes before the arguments of the job.
        self.first: tuple[object, ...] = (CONTEXT,) if takes_context else ()
        levels = [
            _without_context(level, takes_context, is_outer=index == 0)
            for index, level in enumerate(self.levels)
        ]
        parameters = levels[0]
        self.text = str(next(filter(_names_any, map(_replaced, self.levels, levels)), self.full))
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        self.is_simple = all(parameter.kind in named for parameter in parameters)
        self.names = frozenset(parameter.name for parameter in parameters)
        required = {p.name for p in parameters if p.default is Parameter.empty}
        positional = [p.name for p in parameters if p.kind is named[0]]
        # For each number of positional arguments: which parameters they fill, which they leave.
        self.filled = [frozenset(positional[:count]) for count in range(len(positional) + 1)]
        self.missing = [required - filled for filled in self.filled]
        # Of all levels: the names of arguments, and their defaults.
        of_all = [p for level in reversed(levels) for p in level if p.kind not in VARIABLE]
        self.argument_names = list(dict.fromkeys(p.name for p in of_all))
        self.defaults = {p.name: p.default for p in of_all if p.default is not Parameter.empty}
        self._known_below = [
            {
                p.name
                for level in self.levels[index + 1 :]
                for p in level.parameters.values()
                if p.kind not in VARIABLE
            }
            for index in range(len(self.levels))
        ]
        self.places = self._names_by_place(levels)

    def accepts(self, count: int, names: Iterable[str]) -> bool:
        """Is a call with *count* positional arguments and these keywords certain to fit?"""
        if not self.is_simple or count >= len(self.filled):
            return False
        given = set(names)
        return given.isdisjoint(self.filled[count]) and self.missing[count] <= given <= self.names

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """Return what a call gives, without defaults; what is in `**kwargs` has names as well.

        Raise TypeError if it does not fit.
        """
        given = (*self.first, *args)
        found = self._through(0, given, kwargs)
        if found is None:
            own, rest, others = _split(self.full, self.full.bind(*given, **kwargs))
            found = Arguments(own | others, list(rest))
        named = {name: value for name, value in found.named.items() if value is not CONTEXT}
        return found._replace(named=named, rest=[v for v in found.rest if v is not CONTEXT])

    def _through(
        self, index: int, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Arguments | None:
        """Return a call as the functions from this level on see it; None if one refuses it."""
        level = self.levels[index]
        try:
            own, rest, others = _split(level, level.bind(*args, **kwargs))
        except TypeError:
            return None
        if index + 1 == len(self.levels):
            stars = [name for name, p in level.parameters.items() if p.kind is VARIABLE[0]]
            return Arguments(own | others, list(rest), stars[0] if stars else None)
        # Arguments that a wrapped function has a name for are passed on, the others are dropped.
        passed = {name: own[name] for name in own if name in self._known_below[index]}
        in_order = [
            passed.pop(name)
            for name, p in level.parameters.items()
            if name in passed and (p.kind is POSITIONAL[0] or (rest and p.kind is POSITIONAL[1]))
        ]
        inner = self._through(index + 1, (*in_order, *rest), passed | others)
        return None if inner is None else inner._replace(named=own | inner.named)

    def _names_by_place(self, levels: list[list[Parameter]]) -> list[set[str]]:
        """Return the names that each positional argument may have in one of the functions."""
        places: list[set[str]] = []
        shift = 0
        for index, level in enumerate(levels):
            names = [p.name for p in level if p.kind in POSITIONAL]
            stars = [p.name for p in level if p.kind is VARIABLE[0]]
            for place, name in enumerate(names + stars):
                places += [set() for _ in range(place + shift + 1 - len(places))]
                places[place].add(name)
                places[place + shift].add(name)
            shift += len([name for name in names if name not in self._known_below[index]])
        return places


@lru_cache(maxsize=4096)
def signature_of(function: Any, takes_context: bool) -> Signature:
    """Return the signature of a task's function, without its context argument."""
    return Signature(function, takes_context)


def _levels(function: Any) -> list[inspect.Signature]:
    levels = [_own_signature(function)]
    seen = {id(function)}
    while any(p.kind in VARIABLE for p in levels[-1].parameters.values()):
        function = getattr(function, "__wrapped__", None)
        if function is None or id(function) in seen:
            break
        seen.add(id(function))
        try:
            levels.append(_own_signature(function))
        except (TypeError, ValueError):  # it is built in
            break
    return levels


def _own_signature(function: Any) -> inspect.Signature:
    """Return the signature of a function itself, not of what it wraps."""
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is None:
        return inspect.signature(function)
    if type(function) is not FunctionType:
        # A library's object in place of a function: what it passes on is unknown.
        names = {"args": VARIABLE[0], "kwargs": VARIABLE[1]}
        return inspect.Signature([Parameter(name, kind) for name, kind in names.items()])
    declared = getattr(function, "__signature__", None)
    if declared is None or declared is not getattr(wrapped, "__signature__", None):
        return inspect.signature(function, follow_wrapped=False)
    # functools.wraps has copied the annotations of the wrapped function.
    code, closure = function.__code__, function.__closure__
    bare = FunctionType(code, function.__globals__, "bare", function.__defaults__, closure)
    bare.__kwdefaults__ = function.__kwdefaults__
    return inspect.signature(bare)


def _without_context(
    level: inspect.Signature, takes_context: bool, *, is_outer: bool
) -> list[Parameter]:
    parameters = list(level.parameters.values())
    if not takes_context or not parameters or parameters[0].kind in VARIABLE:
        return parameters
    # A decorator may keep the context to itself.
    return parameters[1:] if is_outer or parameters[0].name == "context" else parameters


def _replaced(level: inspect.Signature, parameters: list[Parameter]) -> inspect.Signature:
    return level.replace(parameters=parameters)


def _names_any(level: inspect.Signature) -> bool:
    """Does a signature name its arguments, or have none?"""
    kinds = [p.kind for p in level.parameters.values()]
    return not kinds or any(kind not in VARIABLE for kind in kinds)


def _split(
    level: inspect.Signature, bound: inspect.BoundArguments
) -> tuple[dict[str, Any], tuple[Any, ...], dict[str, Any]]:
    """Return a function's own arguments, those of its `*args` and those of its `**kwargs`."""
    own: dict[str, Any] = {}
    rest: tuple[Any, ...] = ()
    others: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = level.parameters[name].kind
        if kind is Parameter.VAR_POSITIONAL:
            rest = value
        elif kind is Parameter.VAR_KEYWORD:
            others = value
        else:
            own[name] = value
    return own, rest, others


def check_signature(task: AnyTask, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError if the task's function cannot be called with these arguments.

    What a decorator takes as `*args` or `**kwargs` fits, whatever it does with that.
    """
    signature = signature_of(task.func, task.takes_context)
    if signature.accepts(len(args), kwargs):
        return
    try:
        signature.full.bind(*signature.first, *args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"{task.module_path}{signature.text} cannot be called with the arguments given: "
            f"{error}.{_misnamed(task, signature, kwargs, str(error))}"
        ) from None


def _misnamed(task: AnyTask, signature: Signature, kwargs: Mapping[str, Any], said: str) -> str:
    """Return which keyword fits no parameter, if *said* names only the one that is missing.

    If it is an option, also where it is given.
    """
    odd = sorted(set(kwargs) - signature.names) if signature.is_simple else []
    remedy = f" It takes no {odd[0]!r}." if odd and repr(odd[0]) not in said else ""
    options = inspect.signature(task.using).parameters
    ours = [SYNONYMS.get(name, name) for name in odd]
    given = [name for name in ours if name in options]
    return remedy + (f" Give options before, by .using({given[0]}=...)." if given else "")


def named_arguments(task: AnyTask, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by name, defaults included; *args, **kwargs flattened.

    Positional arguments whose names are unknown are a list under NAMELESS. Then defaults are left
    out, because one of these may be given.
    """
    signature = signature_of(task.func, task.takes_context)
    call = signature.call(args, kwargs)
    if not call.rest:
        return signature.defaults | call.named
    if call.name_of_rest is None:
        return call.named | {NAMELESS: call.rest}
    return signature.defaults | {call.name_of_rest: call.rest} | call.named


def default_arguments(task: AnyTask) -> dict[str, Any]:
    """Return the defaults of a task's arguments by name."""
    return signature_of(task.func, task.takes_context).defaults


def arguments_by_name(task: AnyTask, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments given in a call as keyword arguments, without defaults.

    Raise TypeError if they do not fit, or one has no name.
    """
    check_signature(task, args, kwargs)
    if not args:
        return dict(kwargs)
    signature = signature_of(task.func, task.takes_context)
    call = signature.call(args, kwargs)
    try:
        # Without arguments whose names only their places tell.
        is_same = not call.rest and signature.call((), call.named) == call
    except TypeError:
        is_same = False
    if not is_same:
        raise TypeError(
            f"{task.module_path}{signature.text} was called with positional arguments that have "
            "no names, so they cannot be merged."
        )
    return call.named
