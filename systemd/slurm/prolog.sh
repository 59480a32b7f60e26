#!/bin/sh
trap 'exit 0' EXIT HUP INT QUIT PIPE ALRM TERM USR1 USR2 XCPU
trap '' XFSZ
# skuwise: tell the agent which GPUs this job was given, and when it began.
#
# For slurm.conf: Prolog=/etc/skuwise/slurm/prolog.sh (where `skuwise agent install` puts it), or run it from your own.
# It runs as root before the job. A prolog that fails drains the node, so this one ends with 0 whatever happens: the
# traps above come first, because a shell that cannot fork, or runs out of memory, ends with 2 by itself. For the same
# reason nothing here starts another program, unless the folder is missing.
#
# One file a run, JOB-RESTARTS.job, which epilog.sh ends with JOB-RESTARTS.end. The run's start and end are the times of
# the two files: a clock that costs no fork. The agent takes a file whose last line is missing for none.
#
# Values that users choose are cut to one short line each and only ever written as text. The agent refuses a file that
# holds anything but these lines.

folder=${SKUWISE_ALLOCATIONS:-/run/skuwise-slurm}
newline='
'
restarts=${SLURM_JOB_RESTART_COUNT:-${SLURM_RESTART_COUNT:-}}
case ${SLURM_JOB_ID:-} in
    '' | *[!0-9]* | ?????????????*) exit 0 ;;
esac
case $restarts in
    *[!0-9]* | ??????*) restarts= ;;
esac

umask 022
{
    # Made by tmpfiles.d at boot; this is for a node where that has not happened yet.
    [ -d "$folder" ] || PATH=/usr/bin:/bin mkdir -p -m 0755 "$folder"
    cd "$folder" || exit 0
    # Only a folder of root's own, and no link to another place.
    { [ -O . ] && [ ! -h "$folder" ]; } || exit 0
    file=./$SLURM_JOB_ID-${restarts:-0}
    lines='version=2\njob_id=%s\nrestarts=%s\ngpus=%.4000s\nsluid=%.20s\nstart=%.11s\nuser=%.64s\nuid=%.10s\n'
    lines=$lines'account=%.64s\npartition=%.64s\nqos=%.64s\nname=%.200s\narray_job_id=%.12s\narray_task_id=%.12s\n'
    lines=$lines'cluster=%.64s\nnode=%.64s\nconf=%.200s\ncomplete=1\n'
    set -- "$SLURM_JOB_ID" "$restarts" \
        "${SLURM_JOB_GPUS%%"$newline"*}" \
        "${SLURM_JOB_SLUID%%"$newline"*}" \
        "${SLURM_JOB_START_TIME%%"$newline"*}" \
        "${SLURM_JOB_USER%%"$newline"*}" \
        "${SLURM_JOB_UID%%"$newline"*}" \
        "${SLURM_JOB_ACCOUNT%%"$newline"*}" \
        "${SLURM_JOB_PARTITION%%"$newline"*}" \
        "${SLURM_JOB_QOS%%"$newline"*}" \
        "${SLURM_JOB_NAME%%"$newline"*}" \
        "${SLURM_ARRAY_JOB_ID%%"$newline"*}" \
        "${SLURM_ARRAY_TASK_ID%%"$newline"*}" \
        "${SLURM_CLUSTER_NAME%%"$newline"*}" \
        "${SLURMD_NODENAME%%"$newline"*}" \
        "${SLURM_CONF%%"$newline"*}"
    # Called twice for one run, the first call's time stands: the file is left alone where it says the same already.
    if [ -f "$file.job" ] && [ ! -e "$file.end" ]; then
        before=
        while IFS= read -r line; do
            case $line in
                version=* | complete=*) continue ;;
            esac
            before=$before${line#*=}$newline
        done <"$file.job"
        now=
        for value; do
            now=$now$value$newline
        done
        [ "$before" = "$now" ] && exit 0
    fi
    # One write, which tmpfs does whole or not at all; what is cut off lacks its last line.
    # shellcheck disable=SC2059
    printf "$lines" "$@" >"$file.job"
} 2>/dev/null
exit 0
