#!/bin/sh
# Runs a command if a workload, a node or a GPU has been idle, and only then:
#   when-idle.sh 4711 2h --prometheus http://localhost:9090 -- scancel 4711
#   when-idle.sh node-7 30m --db /var/lib/skuwise/skuwise.db -- dstack stop -y my-run
# Where SKUWISE_URL is set, it asks `skuwise serve` there (idle-over-http.sh) and needs no source:
#   SKUWISE_URL=http://127.0.0.1:9478 when-idle.sh 4711 2h -- scancel 4711
# Exit status: 0 idle and the command succeeded, 4 busy, 5 not known, 1 anything else, 2 wrong usage. Busy, unknown and
# every failure leave the workload alone.
set -u

[ -z "${SKUWISE_URL:-}" ] || SKUWISE=$(dirname "$0")/idle-over-http.sh

usage() {
    echo "usage: when-idle.sh TARGET LONGER_THAN [SOURCE OPTION ...] -- COMMAND [ARGUMENT ...]" >&2
    exit 2
}

[ $# -ge 4 ] || usage
target=$1 longer_than=$2
shift 2
# The source's options are turned round to the end, so that what is left in front is the command.
count=0
for word in "$@"; do
    [ "$word" = -- ] && break
    count=$((count + 1))
done
# A "--" and a word behind it.
[ "$#" -ge "$((count + 2))" ] || usage
case $target in '' | -*) usage ;; esac

ask() {
    # $1: how many of the words that follow are the source's.
    left=$1
    shift
    total=$#
    while [ "$left" -gt 0 ]; do
        word=$1
        shift
        set -- "$@" "$word"
        left=$((left - 1))
        total=$((total - 1))
    done
    # What is in front now is -- and the command.
    shift "$total"
    "${SKUWISE:-skuwise}" idle "$target" --longer-than "$longer_than" "$@"
}

answer=$(ask "$count" "$@")
status=$?
[ -z "$answer" ] || printf '%s\n' "$answer"
case $status in
    0) ;;
    4) exit 4 ;;
    # 3: the source has no such workload.
    3 | 5) exit 5 ;;
    *)
        echo "when-idle.sh: skuwise idle failed with status $status; nothing is done" >&2
        exit 1
        ;;
esac
# A wrapper that loses the exit status must not look like an answer.
case $answer in
    'idle: '*) ;;
    *)
        echo "when-idle.sh: status 0 without an answer; nothing is done" >&2
        exit 1
        ;;
esac
shift "$((count + 1))"
"$@" || {
    echo "when-idle.sh: $1 failed with status $?" >&2
    exit 1
}
