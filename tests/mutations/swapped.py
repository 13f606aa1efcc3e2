"""The functions of an imported module, given the code that a mutated source would give them.

References to a function stay what they are, so neither the package nor its tests are imported again.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType


def swap(module: ModuleType, source: str, mutated: str | ast.Module) -> int:
    """Give the functions of a module the code of a mutated source; returns how many are others now.

    Raises ``ValueError`` where the mutation is not inside a function, because then it would have no effect.
    """
    before, after = compile(source, "whole", "exec"), compile(mutated, "mutated", "exec")
    if _outside(before) != _outside(after):
        raise ValueError("the mutation changes more than the body of a function")
    whole, codes = dict(_functions(before)), dict(_functions(after))
    changed = 0
    for function in _defined(module):
        name = function.__qualname__
        if name in codes and _told(codes[name]) != _told(whole[name]):
            function.__code__ = codes[name]
            changed += 1
    return changed


def _functions(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Functions and methods by their qualified names; what is inside a function is a part of it."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_NEWLOCALS:
                yield constant.co_qualname, constant
            else:
                yield from _functions(constant)


def _told(code: CodeType) -> tuple[object, ...]:
    """What code does, without where it stands."""
    constants = tuple(_told(one) if isinstance(one, CodeType) else (type(one), one) for one in code.co_consts)
    return (code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars)


def _outside(code: CodeType) -> tuple[object, ...]:
    """What the code of a module or a class does apart from the bodies of its functions."""
    constants: list[object] = []
    for one in code.co_consts:
        if not isinstance(one, CodeType):
            constants.append((type(one), one))
        else:
            constants.append(one.co_qualname if one.co_flags & inspect.CO_NEWLOCALS else _outside(one))
    return (code.co_code, tuple(constants), code.co_names)


def _defined(module: ModuleType) -> Iterator[FunctionType]:
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            for member in vars(value).values():
                yield from _function_of(member)
        elif getattr(value, "__module__", None) == module.__name__:
            yield from _function_of(value)


def _function_of(value: object) -> Iterator[FunctionType]:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, functools.cached_property):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, FunctionType):
        yield value
