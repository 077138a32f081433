"""Options of a model, from keywords to the command line's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from . import _native
from .errors import OptionError

#: Requests that may wait: a list of prompts is one batch, however long.
_QUEUE = 1_000_000


def _text(name: str, value: Any) -> str:
    if name in ("gpu_memory", "cpu_memory") and isinstance(value, int):
        return f"{value / 1e6!r}MB"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def words(options: Mapping[str, Any]) -> list[str]:
    """``--name=value`` for each option that is set."""
    found = []
    for name, value in options.items():
        option = "--temp" if name == "temperature" else "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            found.append(option)
        elif isinstance(value, (list, tuple)):
            found.extend(f"{option}={_text(name, one)}" for one in value)
        else:
            found.append(f"{option}={_text(name, value)}")
    return found


@contextmanager
def _template_file(template: str | os.PathLike[str] | None) -> Iterator[str | None]:
    """The path of a chat template, which may be a path or the template itself."""
    if not isinstance(template, str) or not any(mark in template for mark in ("{{", "{%", "\n")):
        yield None if template is None else os.fspath(template)
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
        path = os.path.join(folder, "chat_template.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write(template)
        yield path


def open_engine(
    model: str | os.PathLike[str],
    shared: _native.Engine | None,
    chat_template: str | os.PathLike[str] | None,
    options: dict[str, Any],
) -> _native.Engine:
    """Opens a model. ``builtin`` is the built-in model."""
    path = os.fspath(model)
    if not path:
        raise OptionError('model: the name is empty; name a GGUF file, a folder, a model of the hub, or "builtin"')
    named = None if path == "builtin" else os.path.expanduser(path)
    _native.set_packages([folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))])
    with _template_file(chat_template) as template:
        every = {"model": named, "queue": _QUEUE, **options, "chat_template": template}
        return _native.Engine(words(every), shared)
