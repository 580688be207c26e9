#!/bin/sh
# The start script of a spot instance (AWS: user data). It works until the run has ended. Before the
# instance is taken away, AWS says so in its metadata; the worker is then told with SIGTERM and
# leaves in good order. Other clouds send SIGTERM themselves, which is all that a worker needs.
#
#   SERVER=host:7070 KEYS=/etc/paceline/keys spot.sh
set -eu
metadata=${METADATA:-http://169.254.169.254/latest}

# Version 2 of the metadata service wants a token with each question; version 1 has none.
is_notified() {
    token=$(curl -sf -m 1 -X PUT -H "X-aws-ec2-metadata-token-ttl-seconds: 60" \
        "$metadata/api/token") || token=
    curl -sf -m 1 -o /dev/null -H "X-aws-ec2-metadata-token: $token" \
        "$metadata/meta-data/spot/instance-action"
}

"${PACELINE_BIN:-paceline}" work "${SERVER:?}" --keys "${KEYS:?}" &
worker=$!
trap 'kill -TERM $worker' TERM INT
while kill -0 $worker 2>/dev/null; do
    if is_notified; then
        kill -TERM $worker
        break
    fi
    sleep "${EVERY:-5}" &
    wait $! || :
done
wait $worker
