"""The command line: arguments, environment and exit code, and nothing else.

Exit codes: 0 done, 1 a command's own failure, 2 a wrong argument or configuration, 3 input that cannot be read.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from . import __version__
from .config import Config, parse, render
from .edge.config_file import read
from .errors import BadInput, ConfigError

EXIT_CONFIG = 2
EXIT_INPUT = 3

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


def _read(file: Path | None, *, keys: bool = True) -> Config:
    return parse("", os.environ) if file is None else read(file, os.environ, keys=keys)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="whymiss")
def commands() -> None:
    """Tell why a prefix-cache lookup missed, and who can act on it."""


@commands.command(short_help="Receive, attribute and send on until stopped.")
@click.option("--config", "file", type=_FILE, help="Configuration file; without it all defaults hold.")
def run(file: Path | None) -> None:
    """Receive spans, attribute misses, and send everything on until stopped; SIGHUP reads the file again.

    \b
    Examples:
      whymiss run
      whymiss run --config whymiss.yaml
    """
    # SIGHUP is blocked until its handler is installed: by default it would end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    config = _read(file)
    # gRPC's own log lines are not JSON, and quote what it could not read. They can be switched on to look for a fault.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from .edge import service

    # What came through a pipe cannot be read twice.
    again = None if file is None or str(file) == "-" else partial(_read, file)
    sys.exit(service.run(config, again))


@commands.command(short_help="Validate a configuration file.")
@click.argument("file", type=_FILE)
def check(file: Path) -> None:
    """Validate a configuration FILE and print what it means, secrets hidden.

    \b
    Examples:
      whymiss check whymiss.yaml
      envsubst < template.yaml | whymiss check -
    """
    click.echo(render(_read(file, keys=False)), nl=False)


@commands.command(short_help="Attribute what a directory has recorded.")
@click.argument("directory", type=_DIRECTORY)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a verdict instead of a table.")
@click.option("--config", "file", type=_FILE, help="Configuration file; without it the only source is the worker.")
def replay(directory: Path, file: Path | None, *, as_json: bool) -> None:
    """Attribute the recorded spans and KV-cache events in DIRECTORY.

    \b
    Examples:
      whymiss replay captures/eviction
      whymiss replay captures/eviction --json | jq .cause
    """
    config = None if file is None else _read(file)
    from .tools import replay as tool

    beside = None if file is None else file.parent
    sys.exit(tool.run(directory, config=config, beside=beside, as_json=as_json, out=sys.stdout))


@commands.command(short_help="Show it at work on a recording of a real vLLM.")
@click.option("--recording", "directory", type=_DIRECTORY, help="Another recording than the project's own.")
def demo(directory: Path | None) -> None:
    """Play a recording of a real vLLM through the real service on loopback, and show why its cache missed.

    \b
    Examples:
      whymiss demo
      whymiss demo --recording tests/captures/03-plugin-lookup-spans
    """
    from .tools import demo as tool

    sys.exit(tool.run(directory=directory, out=sys.stdout))


@commands.command(short_help="Say where two requests stop being the same.")
@click.argument("files", nargs=-1, required=True, type=_FILE)
@click.option("--reference", type=_FILE, help="Compare one request with this reference instead of a second one.")
@click.option("--block-size", default=16, show_default=True, type=click.IntRange(min=1), help="Tokens in one block.")
@click.option("--tokenizer", type=_FILE, help="A tokenizer.json, for requests that hold text.")
@click.option("--config", "file", type=_FILE, help="Configuration file, for redaction.digest_key.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--reveal-text", "snippet", is_flag=True, help="Also print the text around the first different token.")
def compare(files: tuple[Path, ...], file: Path | None, **options: Any) -> None:
    """Say where two serialised requests (JSON with token_ids, or text) stop being the same to a prefix cache.

    Exit code 0: the same; 1: different.

    \b
    Examples:
      whymiss compare before.json after.json
      whymiss compare --reference system-prompt.reference.json --config whymiss.yaml request.json
    """
    from .tools import compare as tool

    sys.exit(tool.run(files, _read(file), tool.Options(**options), sys.stdout))


@commands.command(short_help="Write a known-good template as keyed digests.")
@click.argument("files", nargs=-1, required=True, type=_FILE)
@click.option("--config", "file", required=True, type=_FILE, help="Configuration file, for redaction.digest_key.")
@click.option("--name", required=True, help="Name of the template.")
@click.option("--template-version", "version", required=True, help="Its version.")
@click.option("--block-size", default=16, show_default=True, type=click.IntRange(min=1), help="Tokens in one block.")
@click.option("--tokenizer", type=_FILE, help="A tokenizer.json, for requests that hold text.")
def reference(files: tuple[Path, ...], file: Path, **options: Any) -> None:
    """Write the chain of a known-good template as keyed digests: of the blocks that all FILES begin with.

    \b
    Example:
      whymiss reference --config whymiss.yaml --name support --template-version 7 a.json b.json > support.json
    """
    from .tools import reference as tool

    sys.exit(tool.run(files, _read(file), tool.Options(**options), sys.stdout))


@commands.command(short_help="Say what whymiss sees in a file of OTLP traces.")
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a span and a request.")
def explain(file: Path, *, as_json: bool) -> None:
    """Say what whymiss sees in a FILE of OTLP traces (protobuf, JSON or JSON lines), and what a verdict would need.

    Exit code 0: some spans are ours; 1: none is.

    \b
    Examples:
      whymiss explain traces.json
      gunzip -c traces.pb.gz | whymiss explain - --json
    """
    from .tools import explain as tool

    content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    sys.exit(tool.run(content, as_json=as_json, out=sys.stdout))


@commands.command(short_help="Replay a trace of requests on other fleets.")
@click.argument("trace", type=_FILE)
@click.option("--workers", multiple=True, metavar="N", help="Workers of the fleet.  [default: 1]")
@click.option(
    "--capacity",
    multiple=True,
    metavar="BLOCKS",
    help="Blocks of a worker's cache, tokens as 3000000t.  [default: inf]",
)
@click.option("--routing", multiple=True, metavar="POLICY", help="How requests are routed.  [default: round_robin]")
@click.option(
    "--tier", multiple=True, metavar="BLOCKS", help="A tier behind each worker, or shared:BLOCKS for one.  [default: 0]"
)
@click.option("--keep", multiple=True, metavar="SECONDS", help="Drop blocks not used for so long.  [default: inf]")
@click.option("--index-lag", multiple=True, metavar="SECONDS", help="How far a prefix router trails.  [default: 0]")
@click.option("--block-size", type=click.IntRange(min=1), help="Tokens in one block.  [default: 512, of token ids 16]")
@click.option(
    "--format", "form", type=click.Choice(["blocks", "tokens"]), help="What a line holds.  [default: as the first]"
)
@click.option("--time-unit", default="ms", show_default=True, type=click.Choice(["ms", "s"]), help="Of timestamps.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes at work.  [default: one a core]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a fleet instead of a table.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the lost tokens: an SVG file.")
def whatif(trace: Path, **options: Any) -> None:
    """Replay the requests in TRACE on other fleets, and say what each would have computed again, and why.

    TRACE is JSON lines, gzip or not, with timestamp and session: hash_ids and input_length (Mooncake, WEKA), or token
    ids. Options that say what the fleet is like may be repeated or hold several values: every combination is replayed,
    and compared with the first.

    \b
    Policies: round_robin, random, least_loaded, sticky (by session), prefix (the longest match if that is
    half of the prompt), prefix_greedy (the longest match, however short).

    \b
    Examples:
      whymiss whatif trace.jsonl.gz --workers 4 --capacity 5859,11718 --routing round_robin,prefix
      whymiss whatif trace.jsonl --workers 4 --capacity 3000000t --tier 0 --tier shared:50000 --plot lost.svg
    """
    from .tools import whatif as tool

    sys.exit(tool.run(trace, tool.Options(**options), sys.stdout, sys.stderr))


@commands.command(short_help="Write the documentation's generated tables.")
@click.option("--check", is_flag=True, help="Write nothing; fail where a table is not what the code says.")
def docs(*, check: bool) -> None:
    """Write the generated tables of the documentation, from a checkout.

    \b
    Examples:
      whymiss docs
      whymiss docs --check
    """
    from .tools import docs as tool

    sys.exit(tool.run(check=check, out=sys.stdout))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, the process's own by default, and end with its exit code."""
    try:
        commands(arguments)
    except ConfigError as error:
        click.echo(f"whymiss: {error}", err=True)
        sys.exit(EXIT_CONFIG)
    except BadInput as error:
        click.echo(f"whymiss: {error}", err=True)
        sys.exit(EXIT_INPUT)


if __name__ == "__main__":
    main()
