#!/bin/bash
#SBATCH --job-name=paceline
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --time=01:00:00
#SBATCH --signal=B:TERM@60
# The server runs beside this script, on the job's first node; every task of the job is a worker.
# Nodes that fail cost their workers and nothing else. Keys for this job alone are made in its
# folder, which must be on a shared file system. With a fast network, docs/cluster.md has MPI.
set -eu
paceline=${PACELINE_BIN:-paceline}
umask 077
keys=$PWD/paceline-keys-$SLURM_JOB_ID
remove_keys() {
    rm -f "$keys"/{ca,server,worker}{,-key}.pem
    rmdir "$keys" || : # it stays if there is something else in it
}
trap remove_keys EXIT # also if the server fails
"$paceline" keys --out "$keys" --host "$(hostname)"
"$paceline" serve --data digits --method kasync --workers "$SLURM_NTASKS" --time 3000 \
    --listen "0.0.0.0:${PACELINE_PORT:-7070}" --keys "$keys" --checkpoint saved --resume auto &
server=$!
trap 'kill -TERM $server 2>/dev/null || :' TERM # a minute before the end: a checkpoint is written
srun --no-kill --kill-on-bad-exit=0 "$paceline" work "$(hostname):${PACELINE_PORT:-7070}" \
    --keys "$keys" --threads 1 &
wait $server || wait $server # once more after a signal
