/* What the files of runs say. Every file may be damaged or hostile: what cannot be read is left out, and
 * said. Nothing here touches the document. */
const Data = (() => {
  const MAX_NAME = 120, MAX_LINES = 200000;

  const num = x => (typeof x === "number" && Number.isFinite(x) ? x : NaN);
  const whole = x => (Number.isSafeInteger(x) && x >= 0 ? x : 0);
  const text = (x, max = 2000) => (typeof x === "string" ? x.slice(0, max) : "");
  const list = x => (Array.isArray(x) ? x : []);
  const object = x => (x && typeof x === "object" && !Array.isArray(x) ? x : {});

  function parse(source, what, troubles) {
    try { return JSON.parse(source); }
    catch (e) { troubles.push(`${what} is not JSON and was left out`); return null; }
  }

  /* One JSON object per line; a line that is none is counted. */
  function lines(source, what, troubles) {
    const out = [];
    let bad = 0;
    for (const line of text(source, Infinity).split("\n", MAX_LINES)) {
      if (!line.trim()) continue;
      try { out.push(object(JSON.parse(line))); } catch (e) { bad++; }
    }
    if (bad) troubles.push(`${what}: ${bad} ${bad === 1 ? "line is" : "lines are"} damaged and left out`);
    return out;
  }

  function point(p) {
    p = object(p);
    return { time: num(p.time), updates: num(p.updates), loss: num(p.loss), testLoss: num(p.test_loss),
      accuracy: num(p.test_accuracy) };
  }

  const points = rows => rows.map(point).filter(p => p.time >= 0).sort((a, b) => a.time - b.time);

  function options(x) {
    const out = {};
    for (const [k, v] of Object.entries(object(x)).slice(0, 200))
      if (typeof v !== "object") out[text(k, MAX_NAME)] = String(v).slice(0, 600);
    return out;
  }

  /* Tasks as typed columns, by worker and then in order of time: first[w] … first[w + 1] - 1. */
  function tasks(t, nRows, troubles) {
    t = object(t);
    const fate = text(t.fate, Infinity), n = fate.length, unit = num(t.unit);
    const columns = ["worker", "end", "duration", "sent", "lag", "number"].map(c => list(t[c]));
    if (!(unit > 0) || columns.some(c => c.length !== n)) {
      if (n) troubles.push("the tasks of a run do not fit together and are left out");
      return null;
    }
    const [worker, end, duration, sent, lag, number] = columns;
    const first = new Uint32Array(nRows + 1);
    for (const w of worker) if (w >= 0 && w < nRows) first[w + 1]++;
    for (let i = 0; i < nRows; i++) first[i + 1] += first[i];
    const at = first.slice(), m = first[nRows];
    const out = { first, n: m, all: whole(t.all), from: new Float64Array(m), to: new Float64Array(m),
      sent: new Float64Array(m), lag: new Float64Array(m), number: new Float64Array(m), fate: new Uint8Array(m) };
    let time = 0;
    for (let i = 0; i < n; i++) {
      time += num(end[i]) || 0;
      if (!(worker[i] >= 0 && worker[i] < nRows)) continue;
      const k = at[worker[i]]++;
      out.to[k] = time * unit;
      out.from[k] = Math.max(0, time - (num(duration[i]) || 0)) * unit;
      out.sent[k] = (num(sent[i]) || 0) * unit;
      out.lag[k] = num(lag[i]);
      out.number[k] = num(number[i]);
      out.fate[k] = Math.max(0, "ADCLRU".indexOf(fate[i]));
    }
    /* before this time some tasks are missing */
    out.complete = 0;
    if (out.all > n && n) out.complete = (num(end[0]) || 0) * unit;
    return out;
  }

  function cells(c) {
    c = object(c);
    const width = num(c.width);
    if (!(width > 0)) return null;
    return { width, rows: list(c.rows).map(r => text(r, 4096)) };
  }

  const ROW = ["compute", "sent", "idle", "wasted", "used", "unused", "heldUp", "last", "task", "unfinished"];

  function history(h, troubles) {
    h = object(h);
    const rows = list(h.rows).slice(0, 4096).map(r => {
      const out = {};
      ROW.forEach((key, i) => { out[key] = num(list(r)[i]); });
      out.pace = text(list(r)[ROW.length], 10);
      return out;
    });
    const s = object(h.staleness), e = object(h.events), f = object(h.fates), fates = {};
    for (const key of ["started", "applied", "dropped", "cancelled", "lost", "rejected", "running"])
      fates[key] = whole(f[key]);
    return {
      method: text(h.method, MAX_NAME),
      command: text(h.command_line, 20000),
      why: text(h.why, 20),
      clock: text(h.clock, 20),
      metric: text(h.metric, 20),
      workers: whole(h.workers),
      time: num(h.time),
      updates: whole(h.updates),
      ended: Boolean(h.ended),
      coreWait: num(h.core_wait),
      fates,
      rows,
      /* What a worker is called: its number, and the name in its certificate if it has one of its own. */
      names: rows.map((_, i) => {
        const name = text(list(h.names)[i], 64);
        return name && name !== "worker" ? `worker ${i + 1}, ${name}` : `worker ${i + 1}`;
      }),
      options: options(h.options),
      points: points(list(h.points)),
      held: list(h.held).map(list).filter(x => x[0] < rows.length && x[1] < rows.length && num(x[2]) > 0),
      knobs: list(h.knobs)
               .map(list)
               .map(k => ({ time: num(k[0]), k: num(k[1]), bound: num(k[2]) }))
               .filter(k => k.time >= 0),
      staleness: {
        mean: num(s.mean),
        max: num(s.max),
        bins: list(s.bins).map(list).map(b => [num(b[0]), num(b[1])]).filter(b => b[0] >= 0 && b[1] > 0)
      },
      tasks: tasks(h.tasks, rows.length, troubles),
      cells: cells(h.cells),
      events:
        { all: whole(e.all), first: list(e.first).map(x => text(x, 400)), last: list(e.last).map(x => text(x, 400)) }
    };
  }

  function makeRun(h, own, info, extra) {
    const opts = Object.keys(options(info.options)).length ? options(info.options) : h ? h.options : {};
    if (info.data === null) delete opts.data; /* the model needs none */
    const pts = own.length ? own : h ? h.points : [];
    const method = opts.method || (h && h.method !== "custom" ? h.method : opts.policy);
    return Object.assign(
      {
        name: text(method, MAX_NAME) || "run",
        seed: opts.seed || "",
        history: h,
        points: pts,
        options: opts,
        info,
        path: "",
        clock: (h && h.clock) || { train: "real", simulate: "virtual" }[info.kind] || ""
      },
      extra);
  }

  /* A log directory, a history or a replayed recording. */
  function readRun(source, files, troubles) {
    const h = files["history.json"] ? parse(files["history.json"], `${source.path}: history.json`, troubles) : null;
    const rows = lines(files["points.jsonl"], `${source.path}: points.jsonl`, troubles);
    const info = object(files["run.json"] ? parse(files["run.json"], `${source.path}: run.json`, troubles) : null);
    const own = source.kind === "recording" ? [] : points(rows);
    const run =
      makeRun(h ? history(h, troubles) : null, own, info, { path: text(source.path, 300), kind: source.kind });
    if (!run.history && rows.length) run.name = text(rows[0].method, MAX_NAME) || "run";
    return run.history || run.points.length ? [run] : [];
  }

  const meanOf = m => ({
    mean: num(object(m).mean),
    half: num(object(m).half),
    low: num(object(m).low),
    high: num(object(m).high),
    bound: text(object(m).bound, 20),
    shown: text(object(m).shown, 40),
    within: num(object(m).within)
  });

  /* What the race computed; the page prints it, and computes none of it again. */
  function standings(about) {
    const rows = new Map();
    for (const r of list(about.ranking).map(object)) {
      const out = { runs: whole(r.runs), reached: whole(r.reached), diverged: whole(r.diverged), lr: num(r.lr) };
      for (const k of
             ["time_to_target", "factor", "loss", "test_accuracy", "test_rmse", "staleness", "wasted", "idle",
              "predicted"])
        out[k] = meanOf(r[k]);
      rows.set(text(r.method, MAX_NAME), out);
    }
    const tried = list(about.entrants)
                    .map(object)
                    .map(e => ({
                           name: text(e.name, MAX_NAME),
                           lr: num(e.lr),
                           rates: list(e.tried).slice(0, 100).map(object).map(
                             t => ({ lr: num(t.lr), time: num(t.time_to_target), error: num(t.error) }))
                         }))
                    .filter(e => e.rates.length);
    return {
      rows,
      tried,
      baseline: text(about.baseline, MAX_NAME),
      sortedBy: text(about.sorted_by, 100),
      verdict: list(about.verdict).map(x => text(x, 2000)).filter(Boolean).slice(0, 100)
    };
  }

  function readRace(source, files, troubles) {
    const runs = [],
          about = object(files["race.json"] ? parse(files["race.json"], `${source.path}: race.json`, troubles) : null);
    const names = list(about.entrants).map(e => text(object(e).name, MAX_NAME)), finished = new Set();
    for (const line of lines(files["results.jsonl"], `${source.path}: results.jsonl`, troubles)) {
      const name = text(line.entrant, MAX_NAME);
      if (name && !names.includes(name)) names.push(name);
      finished.add(`${names.indexOf(name) + 1} ${num(line.seed)}`);
    }
    const all = names.length * whole(about.seeds);
    if (finished.size < all)
      troubles.push(`The race in ${text(source.path, 300)} is not finished: ${all - finished.size} of ${all} runs ` +
        `have no result. paceline race --resume goes on with it.`);
    const info = object(files["run.json"] ? parse(files["run.json"], `${source.path}: run.json`, troubles) : null);
    const race = standings(about), clock = about.real === true ? "real" : "virtual", histories = new Map();
    const historyOf = key => { /* each is read once, for all seeds */
      if (!histories.has(key)) {
        const raw = files[key] ? parse(files[key], `${source.path}: ${key}`, troubles) : null;
        histories.set(key, raw ? history(raw, troubles) : null);
      }
      return histories.get(key);
    };
    for (const file of Object.keys(files).sort()) {
      const m = /^points-(\d+)-seed(\d+)\.jsonl$/.exec(file);
      const name = m ? names[Number(m[1]) - 1] : null;
      if (!name || !finished.has(`${Number(m[1])} ${Number(m[2])}`)) continue;
      const h = historyOf(`history-${m[1]}.json`), mine = h && h.options.seed === m[2] ? h : null;
      runs.push(makeRun(mine, points(lines(files[file], `${source.path}: ${file}`, troubles)), mine ? {} : info,
        { name, seed: m[2], path: text(source.path, 300), kind: "race", entrant: name, race, clock,
          options: Object.assign(
            {}, h ? h.options : options(about.options || info.options), { seed: m[2] },
            info.data === null ? { data: "" } : {}),
          metric: h ? h.metric : "" }));
    }
    return runs;
  }

  function read(document, troubles) {
    const runs = [];
    for (const source of list(object(document).sources).map(object)) {
      const files = object(source.files);
      try { runs.push(...(source.kind === "race" ? readRace : readRun)(source, files, troubles)); }
      catch (e) { troubles.push(`${text(source.path, 300)} could not be read`); }
    }
    return runs;
  }

  /* --- groups: runs that differ by their seed alone --- */

  const metricOf = run => {
    const m = run.history ? run.history.metric : run.metric || "";
    if (run.points.some(p => Number.isFinite(p.accuracy))) return "accuracy";
    if (m === "rmse" && run.points.some(p => Number.isFinite(p.testLoss))) return "rmse";
    return "loss";
  };

  const METRICS = {
    accuracy: { name: "test accuracy", value: p => p.accuracy, up: true, target: o => Number(o["target-accuracy"]) },
    rmse: { name: "test RMSE", value: p => Math.sqrt(p.testLoss), up: false, target: () => 0 },
    testLoss: { name: "test loss", value: p => p.testLoss, up: false, target: () => 0 },
    loss: { name: "training loss", value: p => p.loss, up: false, target: o => Number(o["target-loss"]) }
  };

  /* When the run met the target: in the middle between two evaluations; and how well that is known. A simulated
   * run evaluates at every update there, so that its time is exact. */
  function reached(run, metric, target) {
    let before = null;
    if (!(target > 0)) return null;
    for (const p of run.points) {
      const v = metric.value(p);
      if (!Number.isFinite(v)) continue;
      if (metric.up ? v >= target : v <= target)
        return before ? { time: (before.time + p.time) / 2,
                          within: run.clock === "virtual" ? 0 : (p.time - before.time) / 2 }
                      : { time: p.time, within: 0 };
      before = p;
    }
    return null;
  }

  /* The evaluation that met the target, or the last one. */
  function shown(run, metric, target) {
    const known = run.points.filter(p => Number.isFinite(metric.value(p)));
    const met =
      target > 0 ? known.find(p => (metric.up ? metric.value(p) >= target : metric.value(p) <= target)) : null;
    return known.length ? metric.value(met || known[known.length - 1]) : NaN;
  }

  /* Runs that differ by their seed alone. A race says what they come to; of other runs there are only their
   * own numbers. */
  function makeGroup(name, runs, metricName) {
    const metric = METRICS[metricName], o = runs[0].options;
    /* of two targets the one that was met ended the run */
    const aims = [metric, ...(metricName === "accuracy" ? [METRICS.loss] : [])].filter(m => m.target(o) > 0),
          other = aims.find(m => runs.some(r => reached(r, m, m.target(o)))) || aims[0] || metric;
    const target = other.target(o) > 0 ? other.target(o) : NaN;
    const standing = (runs[0].race && runs[0].race.rows.get(name)) || null,
          met = runs.map(r => reached(r, other, target)).filter(Boolean);
    return {
      name,
      runs,
      metric: metricName,
      targetMetric: other === METRICS.loss ? "loss" : metricName,
      target,
      standing,
      diverged: standing
        ? standing.diverged
        : runs.filter(r => r.info.why === "diverged" || (r.history && r.history.why === "diverged")).length,
      times: met.map(m => m.time),
      within: Math.max(0, ...met.map(m => m.within)),
      finals: runs.map(r => shown(r, metric, metric === other ? target : NaN)).filter(Number.isFinite)
    };
  }

  /* Those that reached their target first, by time, and then by what they ended with. */
  function rank(a, b) {
    const x = a.times.length === a.runs.length, y = b.times.length === b.runs.length;
    if (x !== y) return x ? -1 : 1;
    const by = x             ? a.times[0] - b.times[0]
      : METRICS[a.metric].up ? b.finals[0] - a.finals[0]
                             : a.finals[0] - b.finals[0];
    return Number.isFinite(by) ? by : a.name < b.name ? -1 : 1;
  }

  /* Workloads, each with its groups in order. A race is a workload of its own. */
  function arrange(runs) {
    const loads = new Map();
    for (const run of runs) {
      const o = run.options, metric = metricOf(run);
      const key = run.race
        ? `race\n${run.path}`
        : [run.clock, metric, ...FACTS.workload.map(k => o[k]), run.points.length ? "" : run.path].join("\n");
      if (!loads.has(key)) loads.set(key, { metric, clock: run.clock, race: run.race || null, runs: [] });
      loads.get(key).runs.push(run);
    }
    return [...loads.values()].map(load => {
      const buckets = new Map();
      for (const run of load.runs) {
        const key = run.entrant ||
          (Object.keys(run.options).length ? Object.entries(run.options)
                                               .filter(([k]) => FACTS.experiment.includes(k))
                                               .map(([k, v]) => `${k}=${v}`)
                                               .sort()
                                               .join("\n")
                                           : `${run.path}\n${run.name}`);
        if (!buckets.has(key)) buckets.set(key, []);
        buckets.get(key).push(run);
      }
      const groups = [...buckets.values()].map(rs => makeGroup(rs[0].entrant || rs[0].name, rs, load.metric));
      if (load.race && load.race.rows.size) {
        const order = [...load.race.rows.keys()],
              place = g => (order.includes(g.name) ? order.indexOf(g.name) : order.length);
        groups.sort((a, b) => place(a) - place(b));
      } else { label(groups); groups.sort(rank); }
      const aimed = groups.find(g => Number.isFinite(g.target)) || groups[0];
      return Object.assign(load, { groups, target: aimed.target, targetMetric: aimed.targetMetric });
    });
  }

  /* Groups with the same name get the options in which they differ. */
  function label(groups) {
    const all = new Map();
    for (const g of groups) all.set(g.name, (all.get(g.name) || []).concat(g));
    for (const same of all.values()) {
      if (same.length < 2) continue;
      const keys = [...new Set(same.flatMap(g => Object.keys(g.runs[0].options)))]
                     .filter(
                       k => FACTS.experiment.includes(k) && k !== "method" &&
                         new Set(same.map(g => g.runs[0].options[k])).size > 1)
                     .slice(0, 3);
      const methods = new Set(same.map(g => g.runs[0].options.method));
      same.forEach((g, i) => {
        const o = g.runs[0].options;
        if (methods.size === same.length && o.method) g.name = o.method;
        else if (keys.length) g.name += " " + keys.map(k => `${k}=${o[k] || "default"}`).join(" ");
        else g.name += ` (${g.runs[0].path || i + 1})`;
      });
    }
  }

  async function inflate(base64) {
    const raw = atob(base64.trim()), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  return { read, history, makeRun, arrange, inflate, METRICS };
})();
