# shellcheck shell=bash
# How the stages of .ci/run are run: each with its output in a file, some beside others, none
# stopped by the failure of another. What failed is told at the end, where a log that is cut off
# to its last hundred lines still shows it.
#
#     begin "name" command...   starts a stage in the background
#     follow "name"             shows its output as it comes, waits, and notes how it ended
#     stage "name" command...   both
#     conclude                  the failures, the summary, the exit status of everything

folder=$(mktemp -d)
failed=()
touch "$folder/summary"
trap abandon EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The file that keeps the output of stage $1; what else is known of it lies beside that.
log_of() {
    printf '%s/%s.log' "$folder" "${1//[^a-zA-Z0-9.]/_}"
}

begin() {
    local log started=$SECONDS
    log=$(log_of "$1")
    shift
    : >"$log"
    (
        set +e
        (set -e; "$@") >"$log" 2>&1
        code=$?
        echo "$((SECONDS - started))" >"$log.seconds"
        exit "$code"
    ) &
    echo $! >"$log.pid"
}

follow() {
    local name=$1 log pid code=0 result
    log=$(log_of "$name")
    pid=$(cat "$log.pid")
    printf '\n=== %s\n' "$name"
    tail -n +1 -s 0.2 -f --pid="$pid" "$log"
    wait "$pid" || code=$?
    rm "$log.pid"
    result=$(grep -aE '[0-9]+ (passed|failed|caught)|^UNSTEADY' "$log" | tail -n 1 | tr -d '=' || true)
    if [ "$code" -ne 0 ]; then
        failed+=("$name")
        result="FAILED${result:+: $result}"
    fi
    note "$name" "$(cat "$log.seconds")" "${result:-ok}"
}

stage() {
    begin "$@"
    follow "$1"
}

# note "name" seconds result: a line of the summary.
note() {
    printf -- '--- %s: %s s, %s\n' "$@"
    printf '%-44s %5s s  %s\n' "$@" | cut -c -160 >>"$folder/summary"
}

conclude() {
    local logs=() name verdict="everything passed"
    for name in "${failed[@]}"; do
        logs+=("$(log_of "$name")")
    done
    if [ ${#failed[@]} -gt 0 ]; then
        verdict="FAILED ($(printf '%s; ' "${failed[@]}"))"
        python3 "$(dirname "${BASH_SOURCE[0]}")/failures.py" "${logs[@]}" || true
    fi
    printf '\n=== summary\n'
    cat "$folder/summary"
    printf '%s in %s s\n' "${verdict/; )/)}" "$SECONDS"
    trap - EXIT
    rm -rf "$folder"
    exit $((${#failed[@]} > 0))
}

# When the script ends before `conclude`: nothing that it started goes on.
abandon() {
    local pid
    for pid in "$folder"/*.pid; do
        [ -e "$pid" ] && end_tree "$(cat "$pid")"
    done
    printf '\n=== not all stages were run\n'
    cat "$folder/summary"
    rm -rf "$folder"
    exit 1
}

# End a process and all below it; `timeout` leaves the process group. It stands still meanwhile, or
# it could start one more.
end_tree() {
    local child
    kill -STOP "$1" 2>/dev/null || return 0
    while grep -q '^State:[[:space:]]*[RSD]' "/proc/$1/status" 2>/dev/null; do
        sleep 0.01
    done
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        end_tree "$child"
    done
    kill "$1" 2>/dev/null || true
    kill -CONT "$1" 2>/dev/null || true
}
