#!/bin/sh
# skuwise: mark this node as out of service, so that its idle GPUs are not called waste.
#
#   drained.sh REASON ...   the node is drained or under maintenance
#   drained.sh --clear      it is back
#
# By hand, from a maintenance playbook, or from a health check that drains the node. Nothing on a node tells its state by
# itself: Slurm keeps it with the controller, Kubernetes with the API server.

set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
LC_ALL=C
export LC_ALL
marker=${SKUWISE_DRAINED_MARKER:-/run/skuwise/drained}

case ${1:-} in
    '' | -h | --help)
        printf 'usage: %s REASON | --clear\n' "$0" >&2
        exit 2
        ;;
    --clear)
        rm -f "$marker"
        exit 0
        ;;
esac
umask 022
folder=$(dirname "$marker")
mkdir -p -m 0755 "$folder"
# Written beside the marker's folder: that folder is the agent's user's, who could put a link in the file's place.
temporary=$(mktemp "$(dirname "$folder")/.skuwise-drained.XXXXXX")
trap 'rm -f "$temporary"' EXIT HUP INT TERM
printf '%s\n' "$(printf '%s' "$*" | tr -cd '[:print:]' | cut -c1-200)" >"$temporary"
chmod 0644 "$temporary"
mv -fT "$temporary" "$marker"
