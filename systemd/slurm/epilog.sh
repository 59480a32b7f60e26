#!/bin/sh
# skuwise: the job is over, its GPUs are free. For slurm.conf: Epilog=/etc/skuwise/slurm/epilog.sh (see prolog.sh).
# It never fails: an epilog that fails drains the node.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
folder=${SKUWISE_ALLOCATIONS:-/run/skuwise/allocations}

case ${SLURM_JOB_ID:-} in
    '' | *[!0-9]*) exit 0 ;;
esac
rm -f "$folder/$SLURM_JOB_ID.job" 2>/dev/null
exit 0
