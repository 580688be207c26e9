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


# PACELINE is the role of a script (docs/network.md), so it cannot be the program
for name in sorted(os.listdir(files)):
    assert not re.search(r"\$\{?PACELINE\b", text(name)), name
assert not re.search(r"\$\{?PACELINE\b", open(f"{source}/docs/cluster.md").read())

# every command line, in YAML, units and scripts; lines that end in \ go on
for name in sorted(os.listdir(files)):
    joined = re.sub(r"\\\n\s*#?", " ", text(name))
    for line in joined.splitlines():
        found = re.search(r"paceline(?:}?\")? (serve|work|keys)\b(.*)", line)
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
    mine = "server" if name == "server" else "worker"
    assert s["volumes"] == [
        f"./keys/{f}:/keys/{f}:ro" for f in ("ca.pem", f"{mine}.pem", f"{mine}-key.pem")]
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
    --workers 3 --time 3600 --quiet --eval-every 0.2 --metrics 127.0.0.1:0 \
    --checkpoint "$work/saved" --checkpoint-every 1s \
    >"$work/out" 2>"$work/err" &
server=$!
pids=$server
n=0
until url=http://127.0.0.1:$(sed -n 's/.*metrics are served on port //p' "$work/err") &&
    curl -sf "$url/metrics" >"$work/page" &&
    grep -q checkpoint_last "$work/page" && grep -q consensus "$work/page"; do
    n=$((n + 1))
    [ $n -lt 1200 ] || fail "no metrics: $(cat "$work/err" "$work/page")"
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
# The metadata service of AWS: version 2 answers those that have a token, version 1 has none.
cat >"$work/metadata.py" <<'PY'
import http.server, os, sys

work, version = sys.argv[1], sys.argv[2]


class Metadata(http.server.BaseHTTPRequestHandler):
    def answer(self, status, text=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_PUT(self):
        right = self.path == "/latest/api/token" and version == "2"
        ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        self.answer(*((200, b"a-token") if right and ttl.isdigit() else (404, b"<html>")))

    def do_GET(self):
        if version == "2" and self.headers.get("X-aws-ec2-metadata-token") != "a-token":
            return self.answer(401)
        right = self.path == "/latest/meta-data/spot/instance-action"
        self.answer(200 if right and os.path.exists(f"{work}/notice{version}") else 404)

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Metadata)
print("metadata on port", server.server_port, flush=True)
server.serve_forever()
PY
serve spots --data digits --model softmax --method async --workers 2 --min-workers 1 \
    --delay const:t=0.01 --time 600 --listen 127.0.0.1:0 --keys "$work/keys"
for version in 1 2; do
    $python "$work/metadata.py" "$work" $version >"$work/metadata$version" 2>&1 &
    pids="$pids $!"
    await "$work/metadata$version" "metadata on port"
    SERVER=127.0.0.1:$port KEYS="$work/keys" EVERY=0.1 PACELINE=https://nowhere:1 \
        METADATA="http://127.0.0.1:$(port_of "$work/metadata$version")/latest" \
        PACELINE_BIN="$paceline" sh "$files/spot.sh" >"$work/spot$version.out" 2>&1 &
    spot=$!
    pids="$pids $spot"
    await "$work/spot$version.out" "as worker 1 of 2"
    echo terminate >"$work/notice$version"
    wait "$spot" || fail "$(cat "$work/spot$version.out")"
    n=0
    until [ "$(grep -c "worker 1 left" "$work/spots.err")" = "$version" ]; do
        n=$((n + 1))
        [ $n -lt 1200 ] || fail "$(cat "$work/spots.err")"
        sleep 0.1
    done
done
kill "$server"
wait "$server" || :

echo "-- a job of Slurm, with an srun that starts its tasks here"
mkdir "$work/bin" "$work/job"
cat >"$work/bin/srun" <<'SH'
#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
"$@" &
"$@" &
wait
SH
chmod +x "$work/bin/srun"
cat >"$work/bin/hostname" <<'SH'
#!/bin/sh
echo localhost
SH
chmod +x "$work/bin/hostname"
free=$($python - <<'PY'
import contextlib, random, socket
while True:  # a port that the system gives to nobody who does not ask for it by its number
    port = random.SystemRandom().randrange(10000, 32000)
    with socket.socket() as s, contextlib.suppress(OSError):
        s.bind(("", port))
        print(port)
        break
PY
)
(cd "$work/job" && exec env PATH="$work/bin:$PATH" SLURM_JOB_ID=7 SLURM_NTASKS=2 \
    PACELINE=https://nowhere:1 PACELINE_BIN="$paceline" PACELINE_PORT="$free" \
    bash "$files/slurm.sh") >"$work/slurm.out" 2>&1 &
job=$!
pids="$pids $job"
await "$work/slurm.out" "worker 2 joined"
kill -TERM "$job"
wait "$job" || fail "$(cat "$work/slurm.out")"
ls "$work/job/saved/"*.safetensors >/dev/null || fail "no checkpoint: $(cat "$work/slurm.out")"
[ ! -e "$work/job/paceline-keys-7" ] || fail "the keys of the job are still there"

echo "-- a job of Slurm whose server fails: no private key is left"
cat >"$work/bin/no-server" <<'SH'
#!/bin/sh
case $1 in
serve) exit 3 ;;
work) ;;
*) exec "${PACELINE:?}" "$@" ;;
esac
SH
chmod +x "$work/bin/no-server"
mkdir "$work/failing"
status=0
(cd "$work/failing" && exec env PATH="$work/bin:$PATH" SLURM_JOB_ID=8 SLURM_NTASKS=2 \
    PACELINE="$paceline" PACELINE_BIN=no-server bash "$files/slurm.sh") >"$work/failing.out" 2>&1 ||
    status=$?
[ $status = 3 ] || fail "status $status, and the server's was 3: $(cat "$work/failing.out")"
[ -z "$(ls "$work/failing")" ] || fail "a job that failed has left $(ls "$work"/failing/*)"
