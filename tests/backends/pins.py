"""Says to `build.sh`, a shell script, what `versions.toml` says: ``pins.py builder|manifest|modules|names|files …|program … FILE``."""

import json
import sys
import tomllib
from pathlib import Path

PARTS = ("receivers", "exporters", "processors", "extensions", "providers")


def main(arguments: list[str]) -> None:
    *words, file = arguments
    pins = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    collector, programs = pins["collector"], pins["programs"]
    match words:
        case ["names"]:
            print("\n".join(("otelcol", "manifests", *programs)))
        case ["files", name]:
            files = (
                [package.rpartition("/")[2] for package in programs[name]["packages"]] if name in programs else [name]
            )
            print(*files)
        case ["program", name]:
            wanted = programs[name]
            paths = [f"{wanted['module']}/{package}" for package in wanted["packages"]]
            print(wanted["version"], wanted.get("tags", "none"), *paths)
        case ["modules"]:
            print(*pins["manifests"]["modules"])
        case ["builder"]:
            print(collector["builder"])
        case ["manifest"]:
            dist = {
                "name": "otelcol",
                "module": "backends",
                "output_path": "./otelcol",
                "version": collector["version"],
            }
            parts = {part: [{"gomod": module} for module in collector[part]] for part in PARTS}
            # JSON is YAML.
            print(json.dumps({"dist": dist, **parts, "replaces": collector["replaces"]}))
        case _:
            sys.exit(f"no such question: {words}")


main(sys.argv[1:])
