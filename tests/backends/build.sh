#!/usr/bin/env bash
# Build the real programs of versions.toml, once, into a cache outside the checkout, and print its folder.
#
#   tests/backends/build.sh [name...]     all of them without an argument: otelcol, manifests, and the programs of versions.toml
#
# Needs go and Python >= 3.11. WHYMISS_BACKENDS names another folder than ~/.cache/whymiss-backends/<hash>.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pins=$here/versions.toml
python=${PYTHON:-python3}
hash=$(cat "$pins" "$here/manifests/main.go" | sha256sum | cut -c1-16)
cache=${WHYMISS_BACKENDS:-${XDG_CACHE_HOME:-$HOME/.cache}/whymiss-backends/$hash}
export CGO_ENABLED=0 GOFLAGS="-p=2 -trimpath ${GOFLAGS:-}"
mkdir -p "$cache"

# Two builds at once would take twice the memory and write the same files.
exec 9>"$cache/.lock"
flock 9
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

pinned() { "$python" "$here/pins.py" "$@" "$pins"; }

# The newest file is moved in whole, so that an interrupted build leaves nothing that looks like a program.
keep() { mv "$1" "$cache/.$2.part" && mv "$cache/.$2.part" "$cache/$2"; }

collector() {
    GOBIN=$work go install "$(pinned builder)"
    pinned manifest >"$work/manifest.yaml"
    (cd "$work" && ./builder --config manifest.yaml)
    keep "$work/otelcol/otelcol" otelcol
}

manifests() {
    mkdir "$work/manifests"
    cp "$here/manifests/main.go" "$work/manifests"
    read -r -a modules < <(pinned modules)
    (cd "$work/manifests" && go mod init manifests >/dev/null && go get "${modules[@]}" && go mod tidy &&
        go build -o manifests -ldflags "-s -w" .)
    keep "$work/manifests/manifests" manifests
}

program() {
    local version tags packages
    read -r version tags packages < <(pinned program "$1")
    read -r -a packages <<<"$packages"
    mkdir -p "$work/$1/built"
    # A module of our own: `go install module/package@version` refuses modules with an exclude or a replace.
    (cd "$work/$1" && go mod init backends >/dev/null && go get -tags "$tags" "${packages[@]/%/@$version}" &&
        go build -tags "$tags" -o built/ -ldflags "-s -w" "${packages[@]}")
    for file in "$work/$1/built"/*; do keep "$file" "$(basename "$file")"; done
}

if [ $# -eq 0 ]; then
    mapfile -t names < <(pinned names)
else
    names=("$@")
fi
for name in "${names[@]}"; do
    built=yes
    for file in $(pinned files "$name"); do [ -x "$cache/$file" ] || built=no; done
    [ $built = yes ] && continue
    echo "building $name" >&2
    case $name in
        otelcol) collector >&2 ;;
        manifests) manifests >&2 ;;
        *) program "$name" >&2 ;;
    esac
done
echo "$cache"
