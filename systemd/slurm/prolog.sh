#!/bin/sh
# skuwise: tell the agent which GPUs this job was given.
#
# For slurm.conf: Prolog=/etc/skuwise/slurm/prolog.sh (where `skuwise agent install` puts it), or call it from your own.
# It runs as root before the job, writes one file, and never fails the job: whatever goes wrong here ends with 0,
# because a prolog that fails drains the node.
#
# Names of jobs and accounts are chosen by users. They are cut to one short printable line and only ever written as
# text; the agent refuses a file that holds anything else than these lines.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
LC_ALL=C
export LC_ALL
folder=${SKUWISE_ALLOCATIONS:-/run/skuwise/allocations}

# Sets of characters, so that nothing else passes. The first argument is a tr(1) set to keep.
only() {
    printf '%s' "$2" | tr -cd "$1" | cut -c1-"$3"
}

case ${SLURM_JOB_ID:-} in
    '' | *[!0-9]*) exit 0 ;;
esac

umask 022
mkdir -p -m 0755 "$folder" 2>/dev/null || exit 0
# The agent's user owns the folder above this one and could put another in its place at any moment: we go in and stay
# there, and write only where it is root's own. What a link could lead us into has another name.
cd -P "$folder" 2>/dev/null || exit 0
[ -O . ] && [ "$(basename "$(pwd -P)")" = "$(basename "$folder")" ] || exit 0
chmod 0755 . 2>/dev/null
temporary=$(mktemp ./.job.XXXXXX 2>/dev/null) || exit 0
trap 'rm -f "$temporary"' EXIT HUP INT TERM

{
    printf 'version=1\n'
    printf 'job_id=%s\n' "$SLURM_JOB_ID"
    printf 'gpus=%s\n' "$(only '0-9A-Za-z,/-' "${SLURM_JOB_GPUS:-}" 2048)"
    printf 'sluid=%s\n' "$(only '0-9A-Za-z' "${SLURM_JOB_SLUID:-}" 20)"
    printf 'start=%s\n' "$(only '0-9' "${SLURM_JOB_START_TIME:-}" 11)"
    printf 'user=%s\n' "$(only '[:alnum:]._@+-' "${SLURM_JOB_USER:-}" 64)"
    printf 'account=%s\n' "$(only '[:alnum:]._@+-' "${SLURM_JOB_ACCOUNT:-}" 64)"
    printf 'name=%s\n' "$(only '[:print:]' "${SLURM_JOB_NAME:-}" 200)"
} >"$temporary" 2>/dev/null || exit 0

chmod 0644 "$temporary" 2>/dev/null || exit 0
# A rename within one folder is atomic: the agent sees the whole file or none.
mv -f "$temporary" "./$SLURM_JOB_ID.job" 2>/dev/null
exit 0
