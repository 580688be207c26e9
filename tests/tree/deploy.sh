#!/bin/sh
# The files of examples/deploy, as far as they can be checked without the systems they are for.
. "${SOURCE_DIR:?}/tests/shell/network.sh"
. "$SOURCE_DIR/tests/shell/python.sh"
find_python 'import yaml' "no Python can import yaml (Debian package python3-yaml)"
files=$SOURCE_DIR/examples/deploy
"$paceline" keys --out "$work/keys"

echo "-- syntax, options, ports"
for command in serve work keys; do
    "$paceline" "$command" --help >"$work/$command.help"
done
for script in slurm.sh spot.sh; do
    shell="sh"
    grep -q '^#!/bin/bash' "$files/$script" && shell=bash
    $shell -n "$files/$script" || fail "$script"
done
# shellcheck disable=SC2154
$python - "$files" "$work" "$SOURCE_DIR" <<'PY' || fail "see above"
import json, os, re, sys
import yaml

files, work, source = sys.argv[1:]
known = {c: set(re.findall(r"--[a-z-]+", open(f"{work}/{c}.help").read())) for c in
         ("serve", "work", "keys")}


def text(name):
    return open(os.path.join(files, name)).read()


def check(command, words, where):
    for word in words:
        option = re.match(r"--[a-z-]+", word)
        assert not option or option.group() in known[command], f"{where}: {command} has no {word}"


# every command line, in YAML, units and scripts; lines that end in \ go on
for name in sorted(os.listdir(files)):
    joined = re.sub(r"\\\n\s*#?", " ", text(name))
    for line in joined.splitlines():
        found = re.search(r"paceline\"?(?:[:-]+paceline}\")? (serve|work|keys)\b(.*)", line)
        if found:
            check(found.group(1), found.group(2).split("#")[0].split(), name)

# Kubernetes
items = {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(text("kubernetes.yaml"))}
jobs = {d: items["Job", f"paceline-{d}"]["spec"]["template"] for d in ("server", "standby")}
server = jobs["server"]["spec"]["containers"][0]
args = server["args"]
check(args[0], args[1:], "kubernetes.yaml")
options = dict(a[2:].split("=", 1) for a in args[1:])
ports = {p["name"]: p["containerPort"] for p in server["ports"]}
assert options["listen"] == f"0.0.0.0:{ports['workers']}" and ports["workers"] == 7070
assert options["metrics"] == f"0.0.0.0:{ports['metrics']}" and ports["metrics"] == 9477
service = items["Service", "paceline"]["spec"]
assert {p["name"]: p["port"] for p in service["ports"]} == ports
spec = items["Deployment", "paceline-worker"]["spec"]
worker = spec["template"]
assert spec["selector"]["matchLabels"] == worker["metadata"]["labels"]
for template in (*jobs.values(), worker):
    pod = template["spec"]
    (secret,) = [v["secret"] for v in pod["volumes"] if "secret" in v]
    assert secret["defaultMode"] & 0o077 == 0, "private keys that others can read are refused"
    assert {m["name"] for m in pod["containers"][0]["volumeMounts"]} == {
        v["name"] for v in pod["volumes"]}
    for volume in pod["volumes"]:
        if "persistentVolumeClaim" in volume:
            items["PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]]
for name, template in jobs.items():
    service = items["Service", "paceline" if name == "server" else "paceline-standby"]["spec"]
    assert service["selector"] == template["metadata"]["labels"]
    assert service["selector"] == {"app": "paceline", "role": name}
    assert {p["name"]: p["port"] for p in service["ports"]} == ports
    assert template["spec"]["restartPolicy"] == "Never", "one that was replaced must not come back"
    (near,) = template["spec"]["affinity"]["podAntiAffinity"].popitem()[1]
    assert near["labelSelector"]["matchExpressions"][0]["values"] == ["server", "standby"]
assert items["Job", "paceline-server"]["spec"]["backoffLimit"] == 0
assert jobs["server"]["spec"]["terminationGracePeriodSeconds"] == 0, "SIGTERM would end the run"

# the standby follows the server's service, and listens on the name of its own, which it has itself
standby = jobs["standby"]["spec"]["containers"][0]
check(standby["args"][0], standby["args"][1:], "kubernetes.yaml")
follows = dict(a[2:].split("=", 1) for a in standby["args"][1:])
assert follows["standby"] == f"https://paceline:{ports['workers']}"
host, port = follows["listen"].split(":")
assert ("Service", host) in items and jobs["standby"]["spec"]["hostname"] == host
assert int(port) == ports["workers"] and follows["keys"] == options["keys"]
assert f"--host paceline,{host}\n" in text("kubernetes.yaml"), "names in the certificate"
assert standby["readinessProbe"]["tcpSocket"]["port"] == "workers"
with open(f"{work}/standby", "w") as f:
    f.write("\n".join(w for w in standby["args"][1:] if w.split("=")[0] not in (
        "--standby", "--listen", "--keys", "--metrics", "--checkpoint")) + "\n")
words = worker["spec"]["containers"][0]["args"]
check(words[0], words[1:], "kubernetes.yaml")
assert words[1] == f"paceline:{port},{host}:{port}"
with open(f"{work}/paths", "w") as f:
    for probe in ("readinessProbe", "livenessProbe"):
        get = server[probe]["httpGet"]
        assert get["port"] == "metrics"
        assert get["path"] == "/readyz", "one without workers waits, and is not started again"
    f.write("/readyz\n/healthz\n")

# containers
services = yaml.safe_load(text("compose.yaml"))["services"]
for name, s in services.items():
    words = s["command"].split()
    check(words[0], words[1:], "compose.yaml")
assert "0.0.0.0:7070" in services["server"]["command"].split()
assert services["worker"]["command"].split()[1] == "server:7070"

# Prometheus, Grafana
target = yaml.safe_load(text("prometheus.yml"))["scrape_configs"][0]["static_configs"][0]["targets"]
assert target == ["127.0.0.1:9477"]
panels = json.loads(text("grafana.json"))["panels"]
exprs = [t["expr"] for p in panels for t in p["targets"]]
with open(f"{work}/metrics", "w") as f:
    f.write("\n".join(sorted(set(re.findall(r"paceline_\w+", " ".join(exprs))))) + "\n")
page = open(f"{source}/docs/deploy.md").read()
for name in os.listdir(files):
    assert name in page, f"{name} is not in docs/deploy.md"
PY

echo "-- pages of the server, and metrics of the dashboard"
"$paceline" train --delay const:t=0.005 --data digits --model softmax --method gossip-pull \
    --workers 3 --time 60 --quiet --eval-every 0.2 --metrics 127.0.0.1:0 \
    --checkpoint "$work/saved" --checkpoint-every 1s \
    >"$work/out" 2>"$work/err" &
server=$!
pids=$server
n=0
until url=http://127.0.0.1:$(sed -n 's/.*metrics are served on port //p' "$work/err") &&
    curl -sf "$url/metrics" >"$work/page" &&
    grep -q checkpoint_last "$work/page" && grep -q consensus "$work/page"; do
    n=$((n + 1))
    [ $n -lt 600 ] || fail "no metrics: $(cat "$work/err" "$work/page")"
    sleep 0.1
done
while read -r path; do
    curl -sf "$url$path" >/dev/null || fail "$path does not answer"
done <"$work/paths"
while read -r name; do
    grep -q "^# TYPE $name " "$work/page" || fail "the server has no metric $name"
done <"$work/metrics"
kill "$server"
wait "$server" || fail "$(cat "$work/err")"

echo "-- a standby can be reached while it follows, and metrics when it has taken over"
serve first --data digits --model softmax --method async --workers 1 --delay const:t=0.01 \
    --time 600 --listen 127.0.0.1:0 --keys "$work/keys"
first=$server
# shellcheck disable=SC2046
"$paceline" serve $(cat "$work/standby") --standby "https://127.0.0.1:$port" --time 600 \
    --listen 127.0.0.1:0 --keys "$work/keys" --metrics 127.0.0.1:0 --checkpoint "$work/taken" \
    >"$work/standby.out" 2>"$work/standby.err" &
second=$!
pids="$pids $second"
await "$work/standby.err" "standby on port"
$python - "$(port_of "$work/standby.err")" <<'PY' || fail "$(cat "$work/standby.err")"
import socket, sys
for _ in range(3):  # as a probe does
    socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
PY
start_worker one "127.0.0.1:$port" --keys "$work/keys"
await "$work/one.out" "has a standby at"
kill -9 "$first"
await "$work/standby.err" "metrics are served on port"
url=http://127.0.0.1:$(sed -n 's/.*metrics are served on port //p' "$work/standby.err")
while read -r path; do
    curl -sf "$url$path" >/dev/null || fail "$path does not answer: $(cat "$work/standby.err")"
done <"$work/paths"
kill "$second"
wait "$second" || fail "$(cat "$work/standby.err")"

echo "-- systemd"
if command -v systemd-analyze >/dev/null; then
    mkdir "$work/units"
    for unit in paceline-server.service paceline-worker@.service; do
        sed "s|/usr/bin/paceline|$paceline|; /^User=/d" "$files/$unit" >"$work/units/$unit"
    done
    out=$(systemd-analyze verify "$work/units/paceline-server.service" \
        "$work/units/paceline-worker@1.service" 2>&1 | grep "$work/units" || :)
    [ -z "$out" ] || fail "$out"
fi

echo "-- a spot instance is taken away"
"$paceline" serve --data digits --model softmax --method async --workers 2 --min-workers 1 \
    --delay const:t=0.01 --time 60 --listen 127.0.0.1:0 --keys "$work/keys" \
    >"$work/s.out" 2>"$work/s.err" &
server=$!
pids="$pids $server"
n=0
until port=$(sed -n 's/.*on port \([0-9]*\).*/\1/p' "$work/s.err") && [ -n "$port" ]; do
    n=$((n + 1))
    [ $n -lt 600 ] || fail "$(cat "$work/s.err")"
    sleep 0.1
done
SERVER=127.0.0.1:$port KEYS="$work/keys" NOTICE="file://$work/notice" EVERY=0.1 \
    PACELINE="$paceline" sh "$files/spot.sh" >"$work/spot.out" 2>&1 &
spot=$!
pids="$pids $spot"
n=0
until grep -q "as worker 1 of 2" "$work/spot.out"; do
    n=$((n + 1))
    [ $n -lt 600 ] || fail "$(cat "$work/spot.out")"
    sleep 0.1
done
echo terminate >"$work/notice"
wait "$spot" || fail "$(cat "$work/spot.out")"
n=0
until grep -q "worker 1 left" "$work/s.err"; do
    n=$((n + 1))
    [ $n -lt 600 ] || fail "$(cat "$work/s.err")"
    sleep 0.1
done
kill "$server"
wait "$server" || :
