/* The page: sentences first, then figures. Everything that comes from files is set as text. */
const Page = (() => {
  const main = document.getElementById("main");
  let runs = [], loads = [], troubles = [], parts = [], chosen = "", view = {}, live = null;

  const section = (id, title, note, tall) => {
    const s = make("section", { id, "aria-labelledby": `${id}-title`, ...(tall ? { class: "tall" } : {}) }, main);
    make("h2", { id: `${id}-title` }, s, title);
    if (note) make("p", { class: "note" }, s, note);
    return s;
  };

  /* --- the verdict ---------------------------------------------------------------------------- */

  const { plural, inSome, workload, loadVerdict, timeVerdict } = Sentences;

  function verdict() {
    const s = make("section", { id: "verdict", "aria-label": "Verdict" }, main), out = [], many = loads.length > 1;
    for (const load of loads) {
      if (many) make("p", { class: "note" }, s, workload(load));
      loadVerdict(load, live).forEach((line, i) => make("p", i ? {} : { class: "headline" }, s, line));
    }
    const best = loads[0] && loads[0].groups[0].runs.find(r => r.history);
    if (best) timeVerdict(best, loads, out);
    if (!runs.length) out.push(live ? "Waiting for the first run." : "There is no run on this page.");
    if (many && out.length) make("p", { class: "note" }, s, "Workers");
    for (const line of out) make("p", {}, s, line);
    if (loads.length === 1 && workload(loads[0])) make("p", { class: "note" }, s, `${workload(loads[0])}.`);
    for (const t of troubles.slice(0, 8)) make("p", { class: "note trouble" }, s, t);
    if (troubles.length > 8)
      make("p", { class: "note trouble" }, s, `And ${troubles.length - 8} more problems like these.`);
  }

  /* --- comparing ------------------------------------------------------------------------------ */

  /* The shares of a run's worker time. */
  function share(run, key) {
    const sum = k => run.history.rows.reduce((s, x) => s + (x[k] || 0), 0);
    return sum(key) / (sum("compute") + sum("sent") + sum("idle") + sum("wasted"));
  }

  /* The columns of the table: heading, and text for a group. Those without any text are left out. */
  function columns(load) {
    const of = (g, key, f, own) =>
      (g.standing                   ? f(g.standing[key].mean)
         : own && g.runs[0].history ? f(own(g.runs[0]))
                                    : "–");
    const metric = { accuracy: "test_accuracy", rmse: "test_rmse", loss: "loss" }[load.metric],
          race = load.race && load.race.rows.size,
          byLoss = race && load.metric !== "loss" && [...load.race.rows.values()].some(r => !r.reached);
    return [
      ["learning rate", g => (g.standing ? Format.three(g.standing.lr) : "–")],
      ["time to target", g => Format.time(g) || (Number.isFinite(g.target) ? "not reached" : "–")],
      [
        race && load.race.baseline ? `times\u00a0as\u00a0fast as\u00a0${load.race.baseline}` : "",
        g => (g.standing ? Format.interval(g.standing.factor, Format.three) : "–")
      ],
      ["predicted time", g => of(g, "predicted", Format.seconds)],
      [
        Data.METRICS[load.metric].name,
        g => (g.standing ? Format.interval(g.standing[metric], Format.metric) : Format.range(g.finals, Format.metric))
      ],
      /* a race ranks methods that did not reach the target by it */
      [
        byLoss ? Data.METRICS.loss.name : "",
        g => (g.standing ? Format.interval(g.standing.loss, Format.metric) : "–")
      ],
      ["mean staleness", g => of(g, "staleness", Format.three, r => r.history.staleness.mean)],
      ["wasted", g => of(g, "wasted", Format.percent, r => share(r, "wasted"))],
      ["idle", g => of(g, "idle", Format.percent, r => share(r, "idle"))]
    ].filter(([name, cell]) => name && load.groups.some(g => cell(g) !== "–"));
  }

  function board(parent, load) {
    if (load.groups.length < 2 && !load.race) return;
    const table = make("table", {}, make("div", { class: "scroll", tabindex: "0" }, parent)),
          head = make("tr", {}, make("thead", {}, table)), body = make("tbody", {}, table), all = columns(load);
    make("th", { scope: "col" }, head, "method");
    for (const [name] of all) make("th", { class: "number", scope: "col" }, head, name);
    load.groups.forEach((g, i) => {
      const row = make("tr", {}, body), name = make("td", {}, row);
      make("span", { class: "swatch", style: `background:var(--c${i % 8})` }, name);
      name.append(g.name + (g.diverged ? ` (diverged${inSome(g)})` : ""));
      for (const [, cell] of all) make("td", { class: "number" }, row, cell(g));
    });
    if (load.groups.some(g => g.standing && Number.isFinite(g.standing.loss.mean)) && load.race.sortedBy)
      make("p", { class: "note" }, parent, `Sorted by ${load.race.sortedBy}.`);
    const within = Math.max(...load.groups.map(g => (g.standing && g.standing.time_to_target.within) || 0));
    if (within > 0)
      make("p", { class: "note" }, parent, `Times to target are known to ± ${Format.one(within)} s.`);
  }

  /* What tuning tried: of every method at every rate the time to the target, the error at the end if no rate
   * reached it, or the training loss at the end if there is no target. */
  function tried(parent, load) {
    const all = load.race ? load.race.tried : [], timed = all.some(e => e.rates.some(t => Number.isFinite(t.time)));
    if (!all.length) return;
    const what = timed                 ? "Seconds to the target"
      : Number.isFinite(load.target) ? "Error at the end"
                                     : "Training loss at the end";
    const box = make("details", { class: "tried" }, parent),
          rates = [...new Set(all.flatMap(e => e.rates.map(t => t.lr)))].filter(Number.isFinite).sort((a, b) => a - b);
    make("summary", {}, box, "Learning rates that were tried");
    make(
      "p", { class: "note" }, box,
      `${what} at each rate, in simulated runs with other seeds${
        timed ? "; – took longer than the best before it, or never arrived" : ""}. The rate that was used is bold.`);
    const table = make("table", {}, make("div", { class: "scroll", tabindex: "0" }, box)),
          head = make("tr", {}, make("thead", {}, table)), body = make("tbody", {}, table);
    make("th", { scope: "col" }, head, "method");
    for (const lr of rates) make("th", { class: "number", scope: "col" }, head, Format.three(lr));
    for (const e of all) {
      const row = make("tr", {}, body);
      make("td", {}, row, e.name);
      for (const lr of rates) {
        const t = e.rates.find(x => x.lr === lr), used = lr === e.lr;
        make(
          used ? "strong" : "span", {}, make("td", { class: "number" }, row),
          t ? Format.three(timed ? t.time : t.error) : "");
      }
    }
  }

  function compare(load, i) {
    const id = i ? `metric-${i + 1}` : "metric", many = load.groups.some(g => g.runs.length > 1);
    const title = m => `${Data.METRICS[m].name[0].toUpperCase()}${Data.METRICS[m].name.slice(1)} over time`;
    const s = section(
      id, "",
      `${loads.length > 1 ? `${workload(load)}. ` : ""}${
        many ? "Lines are means over seeds, bands are 95 % intervals. " : ""}`);
    const card = make("div", { class: "card" }, s), bar = make("div", { class: "bar" }, card),
          box = make("div", {}, card);
    const points = load.groups.flatMap(g => g.runs.flatMap(r => r.points));
    const names = ["accuracy", "rmse", "loss", "testLoss"].filter(
      k => k === load.metric ||
        ((k === "loss" || k === "testLoss") && points.some(p => Number.isFinite(Data.METRICS[k].value(p)))));
    const v = view[id] || (view[id] = { metric: load.metric, log: spans(load) });
    const draw = () => {
      box.replaceChildren();
      s.querySelector("h2").textContent = title(v.metric);
      const chart = Charts.comparison(box, load, v.metric, v.log);
      parts = parts.filter(p => p.id !== id);
      if (chart) parts.push({ id, chart, resize: chart.resize, redraw: draw });
    };
    const buttons = names.map(k => {
      const b = make("button", { type: "button", "aria-pressed": String(k === v.metric) }, bar, Data.METRICS[k].name);
      b.addEventListener("click", () => {
        v.metric = k;
        buttons.forEach((x, n) => x.setAttribute("aria-pressed", String(names[n] === k)));
        draw();
      });
      return b;
    });
    make("span", { class: "grow" }, bar);
    const log = make("button", { type: "button", "aria-pressed": String(v.log) }, bar, "logarithmic time");
    log.addEventListener("click", () => { v.log = !v.log; log.setAttribute("aria-pressed", String(v.log)); draw(); });
    draw();
    board(card, load);
    tried(card, load);
  }

  /* Whether the times span decades, and so far apart are the ends that the early ones are squeezed. */
  function spans(load) {
    const ends =
      load.groups.map(g => Math.max(...g.runs.map(r => (r.points.length ? r.points[r.points.length - 1].time : 0))))
        .filter(t => t > 0);
    const first = Math.min(
      ...load.groups.flatMap(g => g.runs.map(r => (r.points.find(p => p.time > 0) || { time: Infinity }).time)));
    return ends.length > 1 && Math.max(...ends) >= 5 * Math.min(...ends) && Math.max(...ends) >= 30 * first;
  }

  /* --- one run -------------------------------------------------------------------------------- */

  const idOf = run => `${run.path}\n${run.name}\n${run.seed}`;

  function chooser(candidates) {
    const s = make("section", { id: "run", "aria-labelledby": "run-title" }, main),
          bar = make("div", { class: "bar" }, s);
    make("h2", { id: "run-title" }, bar, "One run");
    const select = make("select", { "aria-label": "Run" }, bar);
    candidates.forEach((r, i) => {
      const g = loads.flatMap(l => l.groups).find(x => x.runs.includes(r));
      const o = make(
        "option", { value: String(i) }, select,
        `${g ? g.name : r.name}${r.seed ? `, seed ${r.seed}` : ""}${
          runs.some(x => x.path !== r.path) ? `, ${r.path}` : ""}`);
      if (idOf(r) === chosen) o.selected = true;
    });
    select.addEventListener("change", () => {
      chosen = idOf(candidates[Number(select.value)]);
      render();
      document.querySelector("#run select").focus();
    });
  }

  function gantt(run) {
    const s = section("tasks", "What the workers did", "", true), h = run.history;
    make(
      "p", { class: "note" }, s,
      h.rows.length > 64
        ? `A heat map of ${Format.count(h.rows.length)} workers and time, those on top that held up others ` +
          "longest. A pixel has the mixture of what happened in its time; zoom in to see tasks."
        : `One row per worker, every task coloured by its fate. Drag to move${
            matchMedia("(pointer: coarse)").matches ? "" : "; click and turn the wheel to zoom"}.`);
    if (h.workers > h.rows.length)
      make(
        "p", { class: "note" }, s,
        `Of ${Format.count(h.workers)} workers, the first ${Format.count(h.rows.length)} are shown.`);
    const card = make("div", { class: "card" }, s);
    let chart = null, busy = false;
    const g = new Gantt(card, run, (t0, t1) => {
      if (chart && !busy) {
        busy = true;
        chart.u.setScale("x", { min: t0, max: t1 });
        busy = false;
      }
    });
    make(
      "p", { class: "note keys" }, card, "Keys: ← → ↑ ↓ move, + − zoom, 0 whole run, n and p next and previous task.");
    parts.push({ id: "tasks", gantt: g, resize: () => g.resize(), redraw: () => g.draw() });
    const k = section("knobs", "K, staleness bound and loss", "On the same time as above: zooming one zooms both.");
    const kcard = make("div", { class: "card" }, k);
    const draw = () => {
      kcard.replaceChildren();
      chart = Charts.knobs(kcard, run, (t0, t1) => {
        if (!busy && Number.isFinite(t0)) {
          busy = true;
          g.show(t0, t1, true);
          busy = false;
        }
      });
      parts = parts.filter(p => p.id !== "knobs");
      parts.push({ id: "knobs", chart, resize: chart.resize, redraw: draw });
    };
    draw();
    if (view.window && view.window.id === idOf(run)) g.restore(view.window);
  }

  const KINDS = [
    ["compute", "computing", "--applied"], ["sent", "sending", "--sent"], ["idle", "idle", "--idle"],
    ["wasted", "wasted", "--cancelled"]
  ];

  function times(run) {
    const h = run.history, s = section("time", "Where the time went"), card = make("div", { class: "card" }, s),
          legend = make("div", { class: "legend" }, card);
    for (const [, name, css] of KINDS) {
      const i = make("span", {}, legend);
      make("i", { class: name, style: `background:var(${css})` }, i);
      i.append(name);
    }
    const stack = make("div", { class: "stack", style: "margin-top:.5rem" }, card);
    const all = {}, most = Math.max(...h.rows.map(r => KINDS.reduce((x, [k]) => x + (r[k] || 0), 0)), 1e-12);
    for (const [k] of KINDS) all[k] = h.rows.reduce((x, r) => x + (r[k] || 0), 0);
    const line = (name, r, scale) => {
      make("span", {}, stack, name);
      const track = make(
        "div", {
          class: "track",
          role: "img",
          "aria-label": KINDS.map(([k, what]) => `${what} ${Format.seconds(r[k] || 0)}`).join(", ")
        },
        stack);
      for (const [k, what, css] of KINDS)
        if (r[k] > 0)
          make(
            "div", {
              style: `width:${(100 * r[k] / scale).toFixed(3)}%;background:var(${css})`,
              title: `${what} ${Format.seconds(r[k])}`
            },
            track);
      const total = KINDS.reduce((x, [key]) => x + (r[key] || 0), 0);
      make("span", {}, stack, total > 0 ? `${Format.percent((r.compute || 0) / total)} used` : "");
    };
    line("all", all, KINDS.reduce((x, [k]) => x + all[k], 0) || 1);
    const order = h.rows.map((r, i) => i);
    if (order.length > 32) order.sort((a, b) => (h.rows[b].heldUp || 0) - (h.rows[a].heldUp || 0));
    for (const i of order.slice(0, 32)) line(h.names[i], h.rows[i], most);
    if (order.length > 32)
      make(
        "p", { class: "note" }, card, `The 32 workers that held up others longest, of ${Format.count(order.length)}.`);
  }

  function waits(parent, run) {
    const h = run.history;
    make("h2", {}, parent, "Who held up whom");
    const card = make("div", { class: "card" }, parent),
          top = h.rows.map((r, i) => [r.heldUp || 0, i]).filter(x => x[0] > 0).sort((a, b) => b[0] - a[0]);
    if (!top.length) { make("p", { class: "note" }, card, "No worker waited for another."); return; }
    const list = make("table", {}, make("div", { class: "scroll" }, card)),
          head = make("tr", {}, make("thead", {}, list)), body = make("tbody", {}, list);
    ["worker", "others waited", "last in", "most of all"].forEach(
      (t, i) => make("th", { scope: "col", ...(i ? { class: "number" } : {}) }, head, t));
    for (const [seconds, i] of top.slice(0, 8)) {
      const row = make("tr", {}, body), worst = h.held.filter(x => x[0] === i).sort((a, b) => b[2] - a[2])[0];
      make("td", {}, row, h.names[i]);
      make("td", { class: "number" }, row, Format.seconds(seconds));
      make("td", { class: "number" }, row, plural(h.rows[i].last, "update"));
      make("td", { class: "number" }, row, worst ? `${h.names[worst[1]]}, ${Format.seconds(worst[2])}` : "");
    }
    if (h.held.length && h.rows.length <= 16) matrix(card, h);
  }

  function matrix(card, h) {
    const n = h.rows.length, most = Math.max(...h.held.map(x => x[2])),
          value = new Map(h.held.map(x => [x[0] * n + x[1], x[2]]));
    make("p", { class: "note", style: "margin-top:.7rem" }, card, "Rows held up columns; darker is longer.");
    const table =
      make("table", { class: "matrix", "aria-label": "Who held up whom" }, make("div", { class: "scroll" }, card));
    const head = make("tr", {}, table);
    make("th", {}, head);
    for (let j = 0; j < n; j++) make("th", { scope: "col", style: "text-align:center" }, head, String(j + 1));
    for (let i = 0; i < n; i++) {
      const row = make("tr", {}, table);
      make("th", { scope: "row" }, row, String(i + 1));
      for (let j = 0; j < n; j++) {
        const v = value.get(i * n + j) || 0,
              cell = make("td", { title: `${h.names[j]} waited ${Format.seconds(v)} for ${h.names[i]}` }, row);
        if (v > 0)
          cell.style.background =
            `color-mix(in srgb, var(--cancelled) ${Math.round(8 + 92 * v / most)}%, var(--faint))`;
      }
    }
  }

  function stale(parent, run) {
    make("h2", {}, parent, "Staleness");
    const card = make("div", { class: "card" }, parent);
    const draw = () => {
      card.replaceChildren();
      const chart = Charts.staleness(card, run.history);
      parts = parts.filter(p => p.id !== "staleness");
      if (chart) parts.push({ id: "staleness", chart, resize: chart.resize, redraw: draw });
    };
    draw();
  }

  function events(run) {
    const e = run.history.events, s = section("events", "Event log"), d = make("details", {}, s);
    make("summary", {}, d, `${plural(e.all, "event")}`);
    const shown = e.first.length + e.last.length;
    if (e.all > shown)
      make(
        "p", { class: "note" }, d,
        `The first ${Format.count(e.first.length)} and the last ${Format.count(e.last.length)}; long lines are cut.${
          run.options["log-dir"] ? " All of them are in events.txt of the log directory." : ""}`);
    const pre = make("pre", { tabindex: "0" }, d);
    if (view.events === chosen) d.open = true;
    const fill = () => {
      if (!d.open) { if (view.events === chosen) view.events = ""; return; }
      view.events = chosen;
      pre.textContent =
        e.first.join("\n") + (e.last.length ? (e.all > shown ? "\n…\n" : "\n") + e.last.join("\n") : "");
    };
    d.addEventListener("toggle", fill);
    fill();
  }

  function configuration(run) {
    const s = section("configuration", "Configuration"), card = make("div", { class: "card" }, s), info = run.info;
    const facts = [
      ["id", info.id], ["version", info.version || run.options.program], ["host", info.host], ["cores", info.cores],
      ["started", info.started], ["ended", info.ended], ["why it ended", info.why], ["files", run.path]
    ].filter(([, v]) => v !== undefined && v !== null && v !== "" && typeof v !== "object");
    const text = run.history && run.history.command ? run.history.command
      : typeof info.command_line === "string"       ? info.command_line.slice(0, 20000)
                                                    : "";
    if (text) {
      const line = make("div", { class: "command" }, card);
      make("pre", { tabindex: "0" }, line, text);
      const copy = make("button", { type: "button" }, line, "Copy");
      copy.addEventListener("click", async () => {
        try { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; }
        catch (e) { copy.textContent = "Select and copy"; }
      });
    }
    if (facts.length) rowsOf(card, facts);
    const d = make("details", {}, card);
    make("summary", {}, d, "All options");
    rowsOf(
      d,
      Object.entries(run.options)
        .filter(([k]) => !["format", "function", "program"].includes(k))
        .map(([k, v]) => [k, v === "" ? "–" : v]));
  }

  function rowsOf(parent, rows) {
    const body = make("tbody", {}, make("table", {}, make("div", { class: "scroll" }, parent)));
    for (const [k, v] of rows) {
      const r = make("tr", {}, body);
      make("th", { scope: "row" }, r, String(k));
      make("td", { class: "long" }, r, String(v).slice(0, 600));
    }
  }

  function oneRun() {
    const candidates = loads.flatMap(l => l.groups.flatMap(g => g.runs)).filter(r => r.history);
    const run = candidates.find(r => idOf(r) === chosen) || (live ? candidates.find(r => !r.history.ended) : null) ||
      candidates[0];
    if (run) chosen = chosen && idOf(run) === chosen ? chosen : live ? "" : idOf(run);
    if (candidates.length > 1) chooser(candidates);
    if (!run) {
      const bare = runs.find(r => Object.keys(r.options).length);
      if (bare) configuration(bare);
      return;
    }
    if (run.history.rows.length) { gantt(run); times(run); }
    const two = make("section", { id: "staleness", class: "columns" }, main);
    const left = make("div", {}, two), right = make("div", {}, two); /* both, before one is measured */
    stale(left, run);
    waits(right, run);
    events(run);
    configuration(run);
  }

  /* --- all of it ------------------------------------------------------------------------------ */

  const CONTENTS = [
    ["metric", "Race"], ["tasks", "Workers"], ["knobs", "K and loss"], ["time", "Time"], ["staleness", "Staleness"],
    ["events", "Events"], ["configuration", "Configuration"]
  ];

  function contents() {
    const nav = document.getElementById("contents");
    nav.replaceChildren();
    for (const [id, name] of CONTENTS)
      if (document.getElementById(id))
        make("a", { href: `#${id}` }, nav, id === "metric" && loads.every(l => l.groups.length < 2) ? "Metric" : name);
  }

  function render() {
    const old = parts.find(p => p.gantt);
    if (old) view.window = { id: idOf(old.gantt.run), ...old.gantt.window() };
    for (const p of parts) if (p.chart) p.chart.u.destroy();
    const focus = document.activeElement,
          where =
            focus && main.contains(focus) ? [focus.tagName, focus.className, focus.textContent.slice(0, 40)] : null;
    parts = [];
    main.replaceChildren();
    verdict();
    loads.forEach((l, i) => { if (l.groups.some(g => g.runs.some(r => r.points.length))) compare(l, i); });
    oneRun();
    contents();
    if (where)
      for (const e of main.getElementsByTagName(where[0]))
        if (e.className === where[1] && e.textContent.slice(0, 40) === where[2]) {
          e.focus({ preventScroll: true });
          break;
        }
  }

  function set(next, subject) {
    runs = next;
    loads = Data.arrange(runs);
    document.getElementById("subject").textContent = subject;
    document.title = subject ? `Paceline: ${subject}` : "Paceline";
    render();
  }

  function redraw() { for (const p of [...parts]) p.redraw(); }

  function theme() {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
    const wear = isDark => { root.dataset.theme = isDark ? "dark" : "light"; redraw(); };
    document.getElementById("theme").addEventListener("click", () => wear(root.dataset.theme !== "dark"));
    dark.addEventListener("change", () => wear(dark.matches));
    wear(dark.matches);
    let wait = 0;
    addEventListener("resize", () => {
      clearTimeout(wait);
      wait = setTimeout(() => {
        for (const p of parts) p.resize();
      }, 120);
    });
  }

  async function open() {
    const packed = document.getElementById("data").textContent;
    theme();
    if (!packed.trim()) return watch();
    try {
      const document_ = JSON.parse(await Data.inflate(packed));
      troubles = [];
      const found = Data.read(document_, troubles);
      set(
        found,
        (Array.isArray(document_.sources) ? document_.sources : []).map(s => String(s.path)).join(", ").slice(0, 200));
      document.getElementById("made").textContent = `Made by paceline ${String(document_.program).slice(0, 20)}.`;
    } catch (e) {
      make(
        "p", { class: "trouble" }, main, "The data of this page cannot be read. It needs a browser of 2023 or later.");
    }
    document.documentElement.dataset.ready = "yes";
  }

  /* --- live ----------------------------------------------------------------------------------- */

  function watch() {
    const state = document.getElementById("state"), past = [];
    let busy = false, again = false, over = false, rest = 0;
    live = true;
    const say = (text, on) => { state.textContent = text; state.className = on ? "live" : ""; };
    const fetchAll = async () => {
      if (busy || performance.now() < rest) { again = again || over; return; }
      busy = true;
      const began = performance.now();
      try {
        const answer = await (await fetch(`data/${past.length}`)).json();
        troubles = [];
        const got = answer.runs.map(r => {
          const h = Data.history(r, troubles);
          return Data.makeRun(h, [], {}, { path: "live" });
        });
        const n = answer.past - past.length;
        past.push(...got.slice(0, Math.max(0, n)));
        const now = got.slice(Math.max(0, n));
        if (!document.querySelector("#main :active"))
          set([...past, ...now], [...now, ...past.slice(-1)].map(r => r.name)[0] || "");
        if (answer.over) { over = true; say("ended", false); }
      } catch (e) { if (!over) say("no connection", false); }
      busy = false;
      rest = performance.now() + Math.max(1500, 20 * (performance.now() - began));
      document.documentElement.dataset.ready = "yes";
      if (again) { again = false; rest = 0; fetchAll(); }
    };
    const source = new EventSource("events");
    source.onmessage = e => {
      let m = {};
      try { m = JSON.parse(e.data); } catch (x) { return; }
      if (m.over && !over) {
        over = true;
        rest = 0;
        again = busy;
        say("ended", false);
        source.close();
      } else if (!over) say("live", true);
      fetchAll();
    };
    source.onerror = () => { if (!over) say("no connection", false); };
    render();
  }

  open();
  return { get parts() { return parts; }, get runs() { return runs; }, get loads() { return loads; } };
})();
