# The shell of one page. Reads pairs of strings that end with NUL, where the output goes and what to run,
# and answers each pair with an exit status. At the end it stops what was left running in the background.
while IFS= read -r -d '' output && IFS= read -r -d '' source; do
    eval "$source" </dev/null >"$output" 2>&1
    printf '%s\0' "$?"
done
jobs=$(jobs -p)
[ -z "$jobs" ] || kill $jobs 2>/dev/null
wait
