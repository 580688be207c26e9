/* Sentences about what was run and what came out of it. */
const Sentences = (() => {
  const words = xs => (xs.length > 1 ? `${xs.slice(0, -1).join(", ")} and ${xs[xs.length - 1]}` : xs.join(""));

  const plural = (n, one) => `${Format.count(n)} ${one}${n === 1 ? "" : "s"}`;

  const CLOCKS = { real: "Real run", virtual: "Simulated", recorded: "Replayed recording" };

  const nameOf = path => path.split("/").filter(Boolean).pop() || "";

  function workload(load) {
    const run = load.groups[0].runs[0], o = run.options, parts = [],
          n = run.history ? run.history.workers : Number(o.workers);
    if (CLOCKS[load.clock])
      parts.push(
        load.race ? `${load.clock === "real" ? "Real" : "Simulated"} race ${nameOf(run.path)}` : CLOCKS[load.clock]);
    if (run.points.some(p => Number.isFinite(p.loss)))
      parts.push(...[o.data, o.model || "model"].filter(x => x && x !== "none"));
    if (n) parts.push(plural(n, "worker"));
    if (o.delay && o.delay !== "auto") parts.push(`delay ${o.delay}`);
    if (o.attack) parts.push(`attack ${o.attack}`);
    return parts.join(", ");
  }

  const inSome = g => (g.diverged < g.runs.length ? ` in ${g.diverged} of ${g.runs.length} runs` : "");

  /* What became of runs that no race compared: a sentence each, and no word about which is better. */
  function groupVerdict(g) {
    const run = g.runs[0], h = run.history, metric = Data.METRICS[g.metric], time = Format.time(g),
          loss = run.points.map(p => p.loss).filter(Number.isFinite);
    const goal = `a ${Data.METRICS[g.targetMetric].name} of ${Format.metric(g.target)}`;
    if (g.diverged)
      return `${g.name} diverged${inSome(g)}${
        loss.length > 1 && g.diverged === g.runs.length
          ? `: its training loss went from ${Format.metric(loss[0])} to ${Format.metric(loss[loss.length - 1])}`
          : ""}.`;
    if (g.times.length) return `${g.name} reached ${goal} ${g.times.length === g.runs.length ? "after " : ""}${time}.`;
    if (g.finals.length)
      return `${g.name} ${h && !h.ended ? "is at" : "ended with"} a ${metric.name} of ${
               Format.range(g.finals, Format.metric)} after ${Format.seconds(run.points[run.points.length - 1].time)}` +
        (Number.isFinite(g.target) ? `; it ${h && !h.ended ? "has not reached" : "did not reach"} ${goal}.` : ".");
    return h ? `${g.name} made ${plural(h.updates, "update")} in ${Format.seconds(h.time)}${h.ended ? "" : " so far"}.`
             : "";
  }

  function loadVerdict(load, live) {
    if (load.race && load.race.verdict.length) return load.race.verdict;
    const out = load.groups.slice(0, 6).map(groupVerdict).filter(Boolean);
    if (load.groups.length > 6) out.push(`And ${load.groups.length - 6} more, in the table below.`);
    if (load.groups.length > 1 && !live)
      out.push("Whether one of them is better than another, single runs cannot tell: " +
        "paceline race compares methods over several seeds.");
    return out;
  }

  /* A sentence about the workers; "" if they hardly waited, or it was not measured. */
  const coreWait = (h, wasted) =>
    (h.coreWait >= 0.01
       ? `Waiting for a core: ${Format.percent(h.coreWait)} of worker time, part of compute${
         wasted >= 0.0005 ? " and wasted" : ""}.`
       : "");

  /* Which run it is, as far as the page has others: "in race mine, under sync, in the run with seed 1, ". */
  function among(run, loads) {
    const load = loads.find(l => l.groups.some(g => g.runs.includes(run))), out = [],
          group = load.groups.find(g => g.runs.includes(run));
    if (loads.some(l => l.groups.some(g => g.runs.some(r => r.path !== run.path))))
      out.push(`in ${load.race ? "race " : ""}${nameOf(run.path)}, `);
    if (loads.length > 1 || load.groups.length > 1) out.push(`under ${group.name}, `);
    if (group.runs.length > 1) out.push(`in the run with seed ${run.seed}, `);
    return out.join("");
  }

  function timeVerdict(run, loads, out) {
    const h = run.history;
    if (!h || !h.rows.length) return;
    const sum = key => h.rows.reduce((s, r) => s + (r[key] || 0), 0),
          all = sum("compute") + sum("sent") + sum("idle") + sum("wasted");
    if (all > 0) {
      const shares =
        [
          ["computing results that were used", sum("compute")], ["sending", sum("sent")], ["waiting", sum("idle")],
          ["on results that were not used", sum("wasted")]
        ].filter(x => x[1] > 0.005 * all)
          .map((x, i) => `${Format.percent(x[1] / all)}${i ? "" : " of their time"} ${x[0]}`);
      const line = `${among(run, loads)}workers spent ${words(shares)}. ${coreWait(h, sum("wasted") / all)}`.trim();
      out.push(line[0].toUpperCase() + line.slice(1));
    }
    const order = h.rows.map((r, i) => [r.heldUp || 0, i]).sort((a, b) => b[0] - a[0]), [most, who] = order[0];
    if (most > 0.01 * h.time)
      out.push(`Worker ${who + 1} held up the others longest: they waited ${Format.seconds(most)} for it alone, in ${
        plural(h.rows[who].last, "update")}.`);
    const median = h.rows.map(r => r.task).filter(Number.isFinite).sort((a, b) => a - b),
          mid = median[Math.floor((median.length - 1) / 2)];
    const slow = h.rows.map((r, i) => [r.task / mid, i]).filter(x => h.rows[x[1]].pace === "slow" && x[0] > 0);
    if (slow.length) {
      const top = slow.sort((a, b) => b[0] - a[0])[0];
      out.push(`Worker ${top[1] + 1} took ${Format.three(top[0])} times as long per task as the median${
        slow.length > 1 ? `, and ${plural(slow.length - 1, "other worker")} ${
          slow.length > 2 ? "were" : "was"} slow, too` : ""}.`);
    }
    const stuck = h.rows.findIndex(r => r.pace === "stuck");
    if (stuck >= 0)
      out.push(`The last task of worker ${stuck + 1} had run for ${Format.seconds(h.rows[stuck].unfinished)
        } when the run ended.`);
  }

  return { plural, inSome, workload, loadVerdict, timeVerdict };
})();
