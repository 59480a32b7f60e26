#!/bin/sh
# Makes the virtual environment of a make target, whole or not at all:
#   environment.sh run|dev|tool GOAL LOCK DIR [VENV as the user gave it]
# run: what `make demo` and `make install` use, with skuwise itself installed. dev: tests and tools, on this checkout.
# tool: the lock alone.
# An environment that is up to date is left as it is. One that fails is removed, and what was there before is back.
set -u
cd "$(dirname "$0")/../.." || exit 1
. deploy/setup/checks.sh
. deploy/setup/install.sh
kind=$1 goal=$2 lock=$3 folder=$4 given=${5:-}
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
folder=${folder%/}
case $kind in run) megabytes=600 ;; dev) megabytes=1300 ;; *) megabytes=200 ;; esac
marker=$folder/.installed before=$folder.before
# An environment is made from the lock alone, wherever the caller's other Python code lies, and holds compiled code,
# whatever the caller's other Pythons write: each start would compile pandas anew.
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT

# A run that was killed leaves what was there before beside it.
recover() {
    [ -d "$before" ] || return 0
    if [ -f "$marker" ]; then rm -rf "$before"; else rm -rf "$folder" && mv "$before" "$folder"; fi
}

current() {
    [ -f "$marker" ] && [ "$(sed -n 's/^lock //p' "$marker")" = "$(checksum "$lock")" ] &&
        "$folder/bin/python" -m pip --version >/dev/null 2>&1 || return 1
    [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$(version_of "$folder/bin/python")" ]
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

checksum() { cat "$@" | sha256sum | cut -d' ' -f1; }

# Only what this script made, or lies in the checkout under the name that it uses, is ever replaced.
check_ownership() {
    [ -e "$folder" ] || [ -L "$folder" ] || return 0
    made=$(sed -n 's/^kind //p' "$marker" 2>/dev/null)
    if [ -n "$made" ] && [ "$made" != "$kind" ]; then
        stop "$folder holds the environment of other make targets. Name another folder: make $goal VENV=DIR"
    fi
    [ -n "$given" ] && [ ! -f "$marker" ] && [ ! -f "$folder/.unfinished" ] && [ -n "$(ls -A "$folder")" ] &&
        stop "$folder exists and make did not create it. Name another folder: make $goal VENV=DIR"
    return 0
}

undo() {
    status=$?
    trap - EXIT
    rm -rf "$folder" "${log:-}"
    [ ! -e "$before" ] && [ ! -L "$before" ] || mv "$before" "$folder"
    exit "$status"
}

create() {
    trap undo EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # Half-made, it is worth nothing; whole, it comes back if this run fails.
    if [ -f "$marker" ]; then mv "$folder" "$before"; else rm -rf "$folder"; fi
    mkdir "$folder" 2>/dev/null || stop "The folder $folder cannot be created. Name another one: make $goal VENV=DIR"
    : >"$folder/.unfinished" || full
    log=$(mktemp "${TMPDIR:-/tmp}/skuwise-setup.XXXXXX") || stop "${TMPDIR:-/tmp} is not writable. Set TMPDIR=DIR."
    printf 'Environment %s: %s, about %s MB\n' "$folder" "$("$python" --version)" "$((megabytes * 2 / 3))" >&2
    "$python" -m venv "$folder" >"$log" 2>&1 || failed
    mkdir "$folder/tmp" || full
    install_lock
    if [ "$kind" != tool ]; then
        install_skuwise
        "$folder/bin/python" -m pip check >"$log" 2>&1 || stop "$lock does not fit pyproject.toml. Run: make lock"
    fi
    rm -rf "$folder/tmp" "$folder/.unfinished" "$log"
    printf 'kind %s\nlock %s\n' "$kind" "$(checksum "$lock")" >"$marker" || full
    trap - EXIT INT TERM HUP
    rm -rf "$before"
}

recover
check_ownership
if ! current; then
    choose_python
    check_programs
    check_place
    create
elif [ "$kind" != tool ] && [ "$(source_sum)" != "$(cat "$folder/.source" 2>/dev/null)" ]; then
    log=$(mktemp "${TMPDIR:-/tmp}/skuwise-setup.XXXXXX") || stop "${TMPDIR:-/tmp} is not writable. Set TMPDIR=DIR."
    trap 'rm -rf "$log" "$folder/tmp"' EXIT
    mkdir -p "$folder/tmp" || full
    install_skuwise
fi
