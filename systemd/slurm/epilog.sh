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
    for file in "./$SLURM_JOB_ID"-*.job; do
        end=${file%.job}.end
        [ -f "$file" ] || continue
        if [ ! -e "$end" ] || [ "$end" -ot "$file" ]; then
            printf '' >"$end"
        fi
    done
    # From here on it only tidies up, with programs that may be missing or refused.
    set -- ./*.end
    [ $# -gt 16 ] || exit 0
    PATH=/usr/bin:/bin
    for end in $(find . -maxdepth 1 -name '[0-9]*-[0-9]*.end' -mmin +10); do
        rm -f "$end" "${end%.end}.job"
    done
} 2>/dev/null
exit 0
