"""Values of JSON, YAML or a pickle in which one thing after another grows."""

import functools
import json


def numbered(value, number):
    """A value like another one, and not the same."""
    if isinstance(value, str):
        return f"{value}{number}"
    if isinstance(value, bool) or not isinstance(value, int | list | dict):
        return value
    if isinstance(value, int):
        return 1000 + number
    if isinstance(value, list):
        return [numbered(value[0], number), *value[1:]] if value else value
    changed = ("content", "id")
    return {
        name: numbered(each, number) if name in changed else each for name, each in value.items()
    }


def grown(value, size):
    """What values of JSON, of YAML or of a pickle become that are too large, by a name."""
    if isinstance(value, dict):
        key, last = next(reversed(value.items()), ("x", 1))
        return {
            "more names": {**value, **{f"{key}{i}": numbered(last, i) for i in range(size)}},
            "other names": {**value, **{f"zz{i}": "x" for i in range(size)}},
        }
    if isinstance(value, list | tuple):
        last = value[-1] if value else "x"
        return {
            "more values": [*value, *(numbered(last, i) for i in range(size))],
            "a value again": [*value, *[last] * size],
        }
    if isinstance(value, str):
        return {"a long text": value + "x" * size}
    return {"numbers": list(range(size))}


def places(value, path=()):
    """Places of a value, itself among them: of each object and list some."""
    yield path
    if isinstance(value, dict | list | tuple) and len(path) < 3:
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        containers = [item for item in items if isinstance(item[1], dict | list | tuple)]
        for key, each in {**dict(containers[:2]), **dict(containers[-1:])}.items():
            yield from places(each, (*path, key))


def put(value, path, new):
    if not path:
        return new
    copy = list(value) if isinstance(value, tuple) else value.copy()
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


def at(value, path):
    return functools.reduce(lambda found, key: found[key], path, value)


def changes_of_values(value, write):
    """All ways to let a place of some values grow; each writes those of a size."""
    for path in places(value):
        for what in grown(at(value, path), 1):
            yield (
                f"{what} at {'/'.join(map(str, path)) or 'the top'}",
                lambda n, path=path, what=what: write(
                    put(value, path, grown(at(value, path), n)[what])
                ),
            )


def changes_of_json(path):
    yield from changes_of_values(
        json.loads(path.read_text()), lambda value: path.write_text(json.dumps(value))
    )


def changes_in_memory(value):
    """The ways to let values grow that are read from no file, and what reads them."""
    kept = []
    return kept, changes_of_values(value, lambda changed: kept.__setitem__(slice(None), [changed]))
