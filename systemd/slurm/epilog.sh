#!/bin/sh
trap 'exit 0' EXIT HUP INT QUIT PIPE ALRM TERM USR1 USR2 XCPU
trap '' XFSZ
# skuwise: the job is over, its GPUs are free. For slurm.conf: Epilog=/etc/skuwise/slurm/epilog.sh (see prolog.sh).
# It ends with 0 whatever happens: an epilog that fails drains the node.
#
# The end of a run is the time of an empty file beside the prolog's. Files of runs that ended are kept for ten minutes,
# so that an agent that looks every ten seconds, or is being restarted, misses none.

folder=${SKUWISE_ALLOCATIONS:-/run/skuwise-slurm}
case ${SLURM_JOB_ID:-} in
    '' | *[!0-9]* | ?????????????*) exit 0 ;;
esac

umask 022
{
    cd "$folder" || exit 0
    { [ -O . ] && [ ! -h "$folder" ]; } || exit 0
    # Not by the restart count: the epilog of a run that is requeued is told the next run's.
    found=
    for file in "./$SLURM_JOB_ID"-*.job; do
        end=${file%.job}.end
        [ -f "$file" ] || continue
        if [ ! -e "$end" ] || [ "$end" -ot "$file" ]; then
            found=yes
            printf '' >"$end"
        fi
    done
    # slurmd 22.05 runs no prolog for most runs of a requeued job. Of such a run this tells what it was given and its end.
    if [ -z "$found" ]; then
        number=${SLURM_JOB_RESTART_COUNT:-0}
        case $number in
            '' | *[!0-9]* | ??????*) number=0 ;;
        esac
        # The run's own count, where the run before left its file; it is one less where this one is requeued in its turn.
        restarts=
        [ "$number" -gt 0 ] && [ -e "./$SLURM_JOB_ID-$((number - 1)).job" ] && restarts=$number
        [ -e "./$SLURM_JOB_ID-$number.job" ] && number=$((number + 1)) restarts=
        file=./$SLURM_JOB_ID-$number
        lines='version=2\njob_id=%s\nrestarts=%s\ngpus=%.4000s\nsluid=%.20s\nuser=%.64s\nuid=%.10s\naccount=%.64s\n'
        lines=$lines'partition=%.64s\ncluster=%.64s\nnode=%.64s\nconf=%.200s\nwithout_prolog=1\ncomplete=1\n'
        newline='
'
        # shellcheck disable=SC2059
        printf "$lines" "$SLURM_JOB_ID" "$restarts" \
            "${SLURM_JOB_GPUS%%"$newline"*}" \
            "${SLURM_JOB_SLUID%%"$newline"*}" \
            "${SLURM_JOB_USER%%"$newline"*}" \
            "${SLURM_JOB_UID%%"$newline"*}" \
            "${SLURM_JOB_ACCOUNT%%"$newline"*}" \
            "${SLURM_JOB_PARTITION%%"$newline"*}" \
            "${SLURM_CLUSTER_NAME%%"$newline"*}" \
            "${SLURMD_NODENAME%%"$newline"*}" \
            "${SLURM_CONF%%"$newline"*}" >"$file.job"
        printf '' >"$file.end"
    fi
    # From here on it only tidies up, with programs that may be missing or refused.
    set -- ./*.end
    [ $# -gt 16 ] || exit 0
    PATH=/usr/bin:/bin
    for end in $(find . -maxdepth 1 -name '[0-9]*-[0-9]*.end' -mmin +10); do
        rm -f "$end" "${end%.end}.job"
    done
} 2>/dev/null
exit 0
