#!/bin/sh
# Stops a dstack run whose hosts have not used their GPUs:
#   dstack-stop.sh my-run 1h gpu-001                       # a dry run
#   dstack-stop.sh --stop my-run 1h gpu-001 gpu-002        # every host, workload or GPU of the run
# The run is stopped only where each answers "idle": by `skuwise serve` where SKUWISE_URL is set, else by
# `skuwise idle` with the source of the weekly report.
# Exit status: 0 idle, 4 busy, 5 not known, 1 anything else, 2 wrong usage.
set -u

stop=
if [ "${1:-}" = --stop ]; then
    stop=yes
    shift
fi
if [ $# -lt 3 ]; then
    echo "usage: dstack-stop.sh [--stop] RUN LONGER_THAN TARGET ..." >&2
    exit 2
fi
run=$1 longer_than=$2
shift 2
for word in "$run" "$@"; do
    case $word in '' | -*) echo "dstack-stop.sh: no name: $word" >&2 && exit 2 ;; esac
done
[ -z "${SKUWISE_URL:-}" ] || SKUWISE=$(dirname "$0")/idle-over-http.sh

for target in "$@"; do
    answer=$("${SKUWISE:-skuwise}" idle "$target" --longer-than "$longer_than" </dev/null)
    status=$?
    echo "$target: ${answer:-no answer (status $status)}"
    case $status:$answer in
        '0:idle: '*) ;;
        4:*) exit 4 ;;
        3:* | 5:*) exit 5 ;;
        *) exit 1 ;;
    esac
done
if [ -z "$stop" ]; then
    echo "would stop $run"
else
    dstack stop -y "$run" || exit 1
fi
