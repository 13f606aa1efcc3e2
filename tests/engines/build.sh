#!/usr/bin/env bash
# Install the engines of versions.toml, once, into a cache outside the checkout, and print its folder.
#
#   tests/engines/build.sh [vllm|sglang|dynamo...]     all of them without an argument
#
# Needs Python 3.11 with venv and pip; sglang is installed into vllm's environment. WHYMISS_ENGINES names another
# folder than ~/.cache/whymiss-engines/<hash>. What was installed whole is not touched again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pins=$here/versions.toml
python=${PYTHON:-python3}
hash=$(sha256sum <"$pins" | cut -c1-16)
cache=${WHYMISS_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/whymiss-engines/$hash}
mkdir -p "$cache"

# Two builds at once would write the same files.
exec 9>"$cache/.lock"
flock 9

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "the engines are pinned for Python 3.11, and $python is another: name one with PYTHON=/path/to/python3.11" >&2
    exit 1
}

# pinned TABLE KEY: what versions.toml says, a line an entry.
pinned() {
    "$python" - "$pins" "$@" <<'PY'
import sys, tomllib
file, table, key = sys.argv[1:]
value = tomllib.load(open(file, "rb"))[table][key]
print("\n".join(value) if isinstance(value, list) else value)
PY
}

# get VENV [pip's arguments...]: requirements come on standard input.
get() {
    local venv=$1
    shift
    cat >"$cache/.requirements"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" --requirement "$cache/.requirements" >&2 || {
        echo "pip could not install, see above; what it was asked for is in $cache/.requirements" >&2
        exit 1
    }
}

vllm() {
    "$python" -m venv "$cache/vllm"
    echo "  torch, up to 2.5 GB" >&2
    pinned vllm torch | get "$cache/vllm"
    echo "  what vLLM imports" >&2
    pinned vllm requirements | get "$cache/vllm" --no-deps
    echo "  vLLM" >&2
    pinned vllm wheel | get "$cache/vllm" --no-deps
    local named site
    named=$(pinned vllm named)
    site=$("$cache/vllm/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    mkdir -p "$site/vllm-$named.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' "$named" >"$site/vllm-$named.dist-info/METADATA"
    "$cache/vllm/bin/python" -c 'import vllm.v1.core.sched.scheduler' >&2
}

sglang() {
    [ -e "$cache/.vllm.done" ] || { echo "sglang runs in vLLM's environment: build vllm first" >&2; exit 1; }
    { pinned sglang wheel; pinned sglang requirements; } | get "$cache/vllm" --no-deps --target "$cache/sglang"
    PYTHONPATH=$cache/sglang "$cache/vllm/bin/python" -W ignore -c 'import sglang.srt.mem_cache.unified_radix_cache' >&2
}

dynamo() {
    "$python" -m venv "$cache/dynamo"
    { pinned dynamo wheels; pinned dynamo requirements; } | get "$cache/dynamo" --no-deps
    "$cache/dynamo/bin/python" -m dynamo.mocker --help >/dev/null
}

for name in "${@:-vllm sglang dynamo}"; do
    for one in $name; do
        case $one in
            vllm | sglang | dynamo) ;;
            *) echo "no such engine: $one" >&2; exit 2 ;;
        esac
        [ -e "$cache/.$one.done" ] && continue
        echo "installing $one into $cache" >&2
        rm -rf "${cache:?}/$one"
        begun=$SECONDS
        "$one"
        touch "$cache/.$one.done"
        echo "  $((SECONDS - begun)) s, $(du -sh "$cache/$one" | cut -f1)" >&2
    done
done

# What runs Python among an engine's packages, under names that a test can look for.
runner() {
    mkdir -p "$cache/bin"
    {
        echo '#!/bin/sh'
        echo 'export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_HOST_IP=127.0.0.1 VLLM_CPU_KVCACHE_SPACE=1'
        echo 'export VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-ERROR}'
        [ -z "${3:-}" ] || echo "export PYTHONPATH=$3\${PYTHONPATH:+:\$PYTHONPATH}"
        echo "exec '$2' \"\$@\""
    } >"$cache/bin/.$1.part"
    chmod +x "$cache/bin/.$1.part"
    mv "$cache/bin/.$1.part" "$cache/bin/$1"
}
[ -e "$cache/.vllm.done" ] && runner vllm-python "$cache/vllm/bin/python"
[ -e "$cache/.sglang.done" ] && runner sglang-python "$cache/vllm/bin/python" "$cache/sglang"
[ -e "$cache/.dynamo.done" ] && runner dynamo-python "$cache/dynamo/bin/python"
echo "$cache"
