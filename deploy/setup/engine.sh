#!/bin/sh
# engine.sh PROGRAM: whether the container engine is there and answers.
engine=$1
if ! command -v "$engine" >/dev/null 2>&1; then
    reason='is not installed'
elif ! "$engine" info >/dev/null 2>&1; then
    reason='does not answer (try: '"$engine"' info)'
else
    exit 0
fi
echo "skuwise: The container engine $engine $reason. Use ENGINE=docker or ENGINE=podman; a release without it: make release IMAGE=no" >&2
exit 1
