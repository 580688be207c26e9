#!/bin/sh
# The job scripts of docs/cluster.md and examples/deploy, and a step of PyTorch, under a Slurm of
# one node, which is started here with a configuration, keys and ports of its own and ended again.
set -u
: "${PACELINE:?}" "${SOURCE_DIR:?}" "${BUILD_DIR:?}"

skip() {
    echo "skipped: $*"
    exit 77
}

[ -n "${MPIEXEC:-}" ] || skip "built without MPI"
[ -z "${SANITIZE:-}" ] || skip "instrumented programs are not run under Slurm"
[ "$(id -u)" = 0 ] || skip "slurmd wants to be root"
PATH=$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd srun sbatch; do
    command -v $program >/dev/null ||
        skip "there is no $program; Debian's munge, slurmctld, slurmd and slurm-client have it"
done
case $("$MPIEXEC" --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) plugin=pmix ;;
    *) plugin=pmi2 ;;
esac

exec 9<"$(command -v slurmd)" && flock -w 600 9 || skip "another test runs Slurm" # one node each
work=$(mktemp -d) || exit 1
pids=
cleanup() {
    for pid in $pids; do kill "$pid" 2>/dev/null; done
    for pid in $pids; do wait "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
chmod 755 "$work"
cd "$work" || exit 1
mkdir state spool run tmp

host=$(hostname -s)
# three of them, apart from those of the next process and from those that the kernel gives out
port=$((20000 + $$ % 3000 * 4))
head -c 1024 /dev/urandom >munge.key
chmod 400 munge.key
cat >slurm.conf <<CONF
ClusterName=paceline-test
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
SlurmUser=root
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
SlurmdSpoolDir=$work/spool
StateSaveLocation=$work/state
TmpFS=$work/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=$plugin
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
CONF
SLURM_CONF=$work/slurm.conf
export SLURM_CONF

# they do not keep the lock; slurmd does not always hear the first signal
daemon='timeout -k 5 1500'
$daemon munged --force --foreground --key-file="$work/munge.key" --socket="$work/munge.socket" \
    --pid-file="$work/munge.pid" --log-file="$work/munge.log" --seed-file="$work/munge.seed" \
    >out 2>&1 9<&- &
pids="$!"
tries=0
until [ -S munge.socket ] || [ $tries = 600 ] || ! kill -0 "$pids" 2>/dev/null; do
    sleep 0.1
    tries=$((tries + 1))
done
[ -S munge.socket ] || skip "munged does not start: $(tail -1 out)"
$daemon slurmctld -D >out.ctld 2>&1 9<&- &
controller=$!
pids="$pids $controller"
$daemon slurmd -D -N "$host" >out.slurmd 2>&1 9<&- &
pids="$pids $!"
tries=0
until sinfo -h -o %t 2>/dev/null | grep -q idle || [ $tries = 600 ] ||
    ! kill -0 $controller 2>/dev/null; do
    sleep 0.2
    tries=$((tries + 1))
done
sinfo -h -o %t 2>/dev/null | grep -q idle ||
    skip "Slurm does not start here: $(tail -1 out.ctld) $(tail -1 out.slurmd)"
timeout 120 srun -n 1 true 2>err || skip "Slurm runs nothing here: $(tail -1 err)"
srun --mpi=list 2>&1 | grep -qw $plugin || skip "this Slurm has no $plugin plugin"

n_failed=0
fail() {
    echo "FAILED: $*"
    n_failed=$((n_failed + 1))
}

# As root and on this machine alone: in tests only.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl=self,vader PMIX_MCA_psec=native
export PACELINE_BIN=$PACELINE PACELINE_MPI=$plugin
awk '/^#!/ { inside = 1 } inside && /^```/ { exit } inside' "$SOURCE_DIR/docs/cluster.md" >job.sh
grep -q '^srun ' job.sh || fail "there is no job script in docs/cluster.md"

batch() { # ntasks, arguments …
    n=$1
    shift
    timeout 120 sbatch --wait -D "$work/run" -o "$work/run/out-$n" --ntasks="$n" --overcommit \
        --signal=TERM@1 job.sh --data digits:samples=400,test=50 --model softmax "$@" \
        >sbatch.out 2>&1 || {
        cat sbatch.out
        fail "job of $n tasks: $(tail -5 "$work/run/out-$n")"
    }
}
batch 5 --updates 40
[ "$(grep -c '"workers":4,.*"updates":40,' run/out-5)" = 1 ] || fail "5 tasks: $(tail -5 run/out-5)"
[ "$(grep -cv "given twice" run/out-5)" = 1 ] || fail "5 tasks said: $(tail -5 run/out-5)"
batch 3 --updates 60
grep -q '"workers":2,.*"updates":60,' run/out-3 || fail "3 tasks, resumed: $(tail -5 run/out-3)"
batch 4 --updates 80 --servers 2
grep -q '"workers":2,.*"updates":80,' run/out-4 || fail "2 servers: $(tail -5 run/out-4)"

# no step, no ranks: a run on this machine
timeout 600 sbatch --wait -D "$work/run" -o "$work/run/out-1" --ntasks=2 --overcommit --wrap \
    "\"$PACELINE\" train --workers 2 --model quadratic --updates 5 --json" >sbatch.out 2>&1 ||
    fail "a plain run in a job: $(tail -5 run/out-1)"
grep -q '"workers":2,' run/out-1 || fail "a plain run in a job: $(tail -5 run/out-1)"

wait_for() { # command …
    tries=0
    until "$@" >/dev/null 2>&1 || [ $tries = 1200 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ $tries -lt 1200 ]
}

# the job without MPI, and meanwhile a step of PyTorch, whose ranks find each other
mkdir run/https
job=$(PACELINE_PORT=$((port + 2)) sbatch --parsable -D "$work/run/https" -o "$work/run/out-https" \
    --nodes=1 --ntasks=2 --ntasks-per-node=2 --overcommit "$SOURCE_DIR/examples/deploy/slurm.sh")
cat >train.py <<'PY'
import os, torch, paceline.torch as pl

model = torch.nn.Linear(3, 1)
opt = pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, "sync", updates=20)
assert opt.world_size == 2 and opt.rank == int(os.environ["SLURM_PROCID"])
while not opt.ended:
    x = torch.randn(8, 3)
    opt.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step(loss)
opt.close()
print("rank", opt.rank, end=" ")
PY
python=/usr/bin/python3
finds_torch='import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))'
if $python -c "$finds_torch" 2>/dev/null; then
    env -u PACELINE PYTHONPATH="$SOURCE_DIR/python" PYTHONDONTWRITEBYTECODE=1 TMPDIR="$work/tmp" \
        PACELINE_LIBRARY="$BUILD_DIR/libpaceline.so" OMP_NUM_THREADS=1 \
        timeout 600 srun -n 2 --overcommit $python train.py >out.torch 2>err.torch ||
        fail "PyTorch: $(tail -20 err.torch)"
    case $(cat out.torch) in
    "rank 0 rank 1 " | "rank 1 rank 0 ") ;;
    *) fail "PyTorch: $(cat out.torch)" ;;
    esac
fi
# its server writes a checkpoint at the signal, and its keys are gone
wait_for grep "worker 2 joined" run/out-https || fail "over HTTPS: $(tail -5 run/out-https)"
ls run/https/paceline-keys-"$job"/worker.pem >/dev/null || fail "over HTTPS: no keys"
scancel --batch --signal=TERM "$job"
has_ended() {
    scontrol show job "$job" | grep -q "JobState=COMPLETED\|JobState=FAILED"
}
wait_for has_ended && scontrol show job "$job" | grep -q "ExitCode=0:0" ||
    fail "over HTTPS: $(scontrol show job "$job") $(tail -5 run/out-https)"
ls run/https/saved/*.safetensors >/dev/null || fail "no checkpoint: $(tail -5 run/out-https)"
[ "$(ls run/https)" = saved ] || fail "over HTTPS: there is still $(ls run/https)"

[ $n_failed = 0 ] && echo "slurm: all as it should be"
[ $n_failed = 0 ]
