#!/bin/sh
# Prints the running Slurm jobs that have not used their GPUs: job, user and skuwise's answer. It cancels nothing.
#   slurm-idle-report.sh 2h --prometheus http://localhost:9090             # every running job, from cron
#   SLURM_JOBS="$SLURM_JOB_ID" slurm-idle-report.sh 2h --db /srv/skuwise   # one job, from EpilogSlurmctld
# Where SKUWISE_URL is set, it asks `skuwise serve` there (idle-over-http.sh) and needs no source.
# Jobs that skuwise knows nothing of, jobs without GPUs among them, are counted on stderr and are never listed.
# Exit status: 0; 1 where squeue failed or a question did; 2 wrong usage. Not for Epilog: there a status other than 0
# drains the node.
set -u

if [ $# -lt 1 ]; then
    echo "usage: slurm-idle-report.sh LONGER_THAN [SOURCE OPTION ...]" >&2
    exit 2
fi
longer_than=$1
shift
[ -z "${SKUWISE_URL:-}" ] || SKUWISE=$(dirname "$0")/idle-over-http.sh

jobs=$(squeue --noheader --states=RUNNING --format='%A %u' ${SLURM_JOBS:+--jobs="$SLURM_JOBS"}) || {
    echo "slurm-idle-report.sh: squeue failed" >&2
    exit 1
}
unknown=0 failed=0
while read -r job user; do
    case $job in '' | *[!0-9]*) continue ;; esac
    answer=$("${SKUWISE:-skuwise}" idle "$job" --longer-than "$longer_than" "$@" </dev/null)
    status=$?
    case $status:$answer in
        '0:idle: '*) printf '%s\t%s\t%s\n' "$job" "$user" "$answer" ;;
        4:*) ;;
        3:* | 5:*) unknown=$((unknown + 1)) ;;
        *) failed=$((failed + 1)) ;;
    esac
done <<END
$jobs
END
[ "$unknown" -eq 0 ] || echo "slurm-idle-report.sh: not known: $unknown jobs" >&2
if [ "$failed" -gt 0 ]; then
    echo "slurm-idle-report.sh: skuwise idle failed for $failed jobs" >&2
    exit 1
fi
