#!/bin/bash
# Starts an endpoint in the runner's container. Everything else is said by environment variables,
# which `quicket lab endpoint --help` lists.

# Routes through the simulated network.
/setup.sh

if [ "$ROLE" = client ]; then
  /wait-for-it.sh sim:57832 -s -t 30
fi
# In place of this shell, which would keep SIGTERM to itself.
# shellcheck disable=SC2086 # parameters are several words
exec quicket lab endpoint $([ "$ROLE" = client ] && echo "$CLIENT_PARAMS" || echo "$SERVER_PARAMS")
