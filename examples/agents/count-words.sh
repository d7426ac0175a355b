#!/bin/sh
# An agent in ten lines: the prompt comes on standard input, the answer goes to standard output.
words=$(wc -w | tr -d ' ')
if [ "$words" -eq 0 ]; then
    echo "there is nothing to count" >&2
    exit 1
fi
echo "Your prompt has $words words."
echo "This is session $AGENT_SESSION_NAME."
