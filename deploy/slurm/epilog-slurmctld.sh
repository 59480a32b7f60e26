#!/bin/bash
# EpilogSlurmctld of slurm.conf: writes the card of a finished job into its AdminComment, beside what jobstats wrote.
#
#   EpilogSlurmctld=/etc/skuwise/slurm/epilog-slurmctld.sh
#
# It returns at once and always succeeds: slurmctld waits for nothing, and no job fails by it. The work is done behind,
# after a delay in which the node's agent writes the job's last minute. Where the job's comment cannot be read, or
# `skuwise` gives no card, nothing is changed.
#
# Opt in by the file /etc/skuwise/slurm/card.conf, one setting a line (NAME=VALUE, taken literally):
#   SOURCE_FLAG=--db              or --prometheus
#   SOURCE=/var/lib/skuwise       a folder of node databases, or a URL
#   DELAY_SECONDS=75              below slurm.conf's MinJobAge (default 300)
#   TIMEOUT_SECONDS=30
# Without the file it does nothing.
set -u
PATH="${SKUWISE_EPILOG_PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"
export PATH
config="${SKUWISE_EPILOG_CONFIG:-/etc/skuwise/slurm/card.conf}"
limit=16384

setting() { # NAME DEFAULT: the last line of the file that sets it, never evaluated
    local line value="$2"
    while IFS= read -r line || [[ -n $line ]]; do
        [[ $line == "$1="* ]] && value="${line#*=}"
    done <"$config"
    printf '%s' "$value"
}

number() { # VALUE DEFAULT: whole seconds of up to four digits
    [[ $1 =~ ^[0-9]{1,4}$ ]] && printf '%s' "$1" || printf '%s' "$2"
}

write_card() {
    local id="$1" flag source delay patience before after
    flag="$(setting SOURCE_FLAG --db)"
    source="$(setting SOURCE '')"
    [[ -n $source && ($flag == --db || $flag == --prometheus) ]] || return 0
    delay="$(number "$(setting DELAY_SECONDS 75)" 75)"
    patience="$(number "$(setting TIMEOUT_SECONDS 30)" 30)"
    sleep "$delay"
    # squeue gives this one field: no name that a user chose can stand in for it.
    before="$(timeout "$patience" squeue --noheader --states=all --jobs="$id" --Format="AdminComment:$limit")" || return 0
    before="${before%"${before##*[![:space:]]}"}"
    [[ $before == *$'\n'* ]] && return 0
    [[ $before == "(null)" || $before == "N/A" ]] && before=""
    after="$(timeout "$patience" skuwise job "$id" "$flag" "$source" --format admin-comment --existing="$before")" || return 0
    [[ $after == *SKW1:* && $after != *$'\n'* && ${#after} -le $limit && $after != "$before" ]] || return 0
    timeout "$patience" scontrol update "JobId=$id" "AdminComment=$after"
}

id="${SLURM_JOB_ID:-}"
if [[ $id =~ ^[0-9]{1,10}$ && -r $config ]]; then
    # A session of its own, holding none of slurmctld's files: it outlives this script and is not waited for.
    if [[ ${1:-} == --now ]]; then
        write_card "$id" >/dev/null 2>&1 || true
    else
        SLURM_JOB_ID="$id" setsid --fork "$BASH" -- "${BASH_SOURCE[0]}" --now </dev/null >/dev/null 2>&1 || true
    fi
fi
exit 0
