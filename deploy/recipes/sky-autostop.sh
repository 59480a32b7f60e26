#!/bin/sh
# Stops a SkyPilot cluster whose GPUs have not been used. SkyPilot's own autostop counts jobs and SSH sessions: a job
# that hangs, or a session that was left open, keeps a cluster up.
#   sky-autostop.sh my-cluster 1h                                          # a dry run
#   sky-autostop.sh --stop my-cluster 1h my-cluster my-cluster-worker1     # every host of the cluster
# It asks the agent's database on each host, by the SSH aliases that SkyPilot writes; where SKUWISE_URL is set, it asks
# `skuwise serve` there (idle-over-http.sh), and hosts are named as their nodes are. The cluster is stopped only where
# every host answers "idle"; a host that is busy, unknown or cannot be reached keeps it. SkyPilot's own autostop cannot
# ask another program yet: its idleness provider is proposed in skypilot-org/skypilot issue 10628.
# Exit status: 0 idle, 4 busy, 5 not known, 1 anything else, 2 wrong usage.
set -u

stop=
if [ "${1:-}" = --stop ]; then
    stop=yes
    shift
fi
if [ $# -lt 2 ]; then
    echo "usage: sky-autostop.sh [--stop] CLUSTER LONGER_THAN [HOST ...]" >&2
    exit 2
fi
cluster=$1 longer_than=$2
shift 2
[ $# -gt 0 ] || set -- "$cluster"
case $longer_than in '' | *[!0-9a-z]*) echo "sky-autostop.sh: no duration: $longer_than" >&2 && exit 2 ;; esac
for host in "$cluster" "$@"; do
    case $host in '' | -*) echo "sky-autostop.sh: no host: $host" >&2 && exit 2 ;; esac
done

database=${SKUWISE_DB:-/var/lib/skuwise/skuwise.db}
for host in "$@"; do
    if [ -n "${SKUWISE_URL:-}" ]; then
        answer=$("$(dirname "$0")/idle-over-http.sh" idle "$host" --longer-than "$longer_than" </dev/null)
    else
        # ssh itself ends with 255.
        answer=$(ssh -o BatchMode=yes "$host" "skuwise idle --db '$database' --longer-than $longer_than" </dev/null)
    fi
    status=$?
    echo "$host: ${answer:-no answer (status $status)}"
    case $status:$answer in
        '0:idle: '*) ;;
        4:*) exit 4 ;;
        3:* | 5:*) exit 5 ;;
        *) exit 1 ;;
    esac
done
if [ -z "$stop" ]; then
    echo "would stop $cluster"
else
    sky stop --yes "$cluster" || exit 1
fi
