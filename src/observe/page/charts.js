/* Numbers as text, colours, and the figures that uPlot draws. */
const Format = (() => {
  const three = x => {
    if (!Number.isFinite(x)) return "–";
    if (x === 0) return "0";
    const a = Math.abs(x);
    if (a >= 1e15 || a < 1e-6) return x.toExponential(2);
    if (a >= 1000) return Math.round(x).toLocaleString("en").replace(/,/g, "\u202f");
    return String(Number(x.toPrecision(3)));
  };
  const one = x => String(Number(x.toPrecision(1)));
  const unit = x => (x > 0 && x < 1e-3 ? [1e6, "µs"] : x > 0 && x < 1 ? [1e3, "ms"] : [1, "s"]);
  const seconds = x => (Number.isFinite(x) ? `${three(x * unit(Math.abs(x))[0])} ${unit(Math.abs(x))[1]}` : "–");
  /* A number that is known to ± within, without digits that are not. */
  const decimals = within => Math.max(0, Math.min(9, Math.ceil(-Math.log10(2 * within))));
  const known = (x, within, f) =>
    (within > 0 && Math.abs(x) < 10 ** (3 - decimals(within)) ? x.toFixed(decimals(within)) : f(x));
  /* A mean of a race with its 95 % interval, or the bound that it is, which the race has rounded. */
  function interval(m, f, factor = 1) {
    if (!Number.isFinite(m.mean)) return "–";
    if (m.bound) return m.shown;
    if (!Number.isFinite(m.half) && (Number.isFinite(m.low) || Number.isFinite(m.high))) { /* a factor */
      const one = x => (m.within > 0 ? known(x, m.within, f) : f(x));
      return one(m.mean) + (m.low < m.high ? ` (${one(m.low)} to ${one(m.high)})` : "");
    }
    if (m.within > 0 && factor === 1) {
      const mean = x => known(x, m.within, f);
      return mean(m.mean) + (Number.isFinite(m.half) ? ` ± ${mean(m.half)}` : "");
    }
    const half = m.half * factor, two = half >= 1000 ? three(half) : String(Number(half.toPrecision(2)));
    return f(m.mean * factor) + (Number.isFinite(half) ? ` ± ${two}` : "");
  }
  const range = (xs, f) =>
    (!xs.length                                    ? "–"
       : f(Math.min(...xs)) === f(Math.max(...xs)) ? f(xs[0])
                                                   : `${f(Math.min(...xs))} to ${f(Math.max(...xs))}`);
  /* The time to the target of a group; empty if it has none. */
  function time(g) {
    const some = n => (n ? `in ${n} of ${g.runs.length} runs` : "");
    if (!g.standing) {
      if (g.times.length < g.runs.length) return some(g.times.length);
      return g.within > 0 ? `${range(g.times, x => known(x, g.within, three))} ± ${one(g.within)} s`
                          : range(g.times, seconds);
    }
    const m = g.standing.time_to_target, [k, name] = m.bound || m.within > 0 ? [1, "s"] : unit(m.mean);
    return Number.isFinite(m.mean) ? `${interval(m, three, k)} ${name}` : some(g.standing.reached);
  }
  const tick = (x, span) => {
    const [k, name] = unit(span / 2), digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(span * k / 20))));
    return `${(x * k).toFixed(digits)} ${name}`;
  };
  const count = x => (Number.isFinite(x) ? Math.round(x).toLocaleString("en").replace(/,/g, "\u202f") : "–");
  const percent = x => (Number.isFinite(x) ? `${x > 0 && x < 0.01 ? "under 1" : Math.round(100 * x)} %` : "–");
  const metric = x =>
    (Number.isFinite(x)
       ? (Math.abs(x) >= 1000 || (x !== 0 && Math.abs(x) < 1e-3) ? three(x) : String(Number(x.toPrecision(4))))
       : "–");
  return { three, one, seconds, tick, count, percent, metric, interval, range, time };
})();

const Theme = {
  css: name => getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888888",
  rgb(name) {
    const c = Theme.css(name), v = parseInt(c.slice(1), 16);
    return c.length === 7 ? [v >> 16 & 255, v >> 8 & 255, v & 255] : [128, 128, 128];
  },
  series: i => Theme.css(`--c${i % 8}`)
};

function make(tag, attributes, parent, text) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.append(e);
  return e;
}

/* Round numbers from a to b, about n of them. */
function ticks(a, b, n) {
  const raw = (b - a) / n, power = 10 ** Math.floor(Math.log10(raw)), out = [];
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= raw) || raw;
  for (let i = Math.ceil(a / step); i * step <= b && out.length < 100; i++) out.push(i * step);
  return out;
}

/* How numbers from lo to hi become places from 0 to 1, on a logarithmic or a linear axis, and back. uPlot
 * sees places alone: its own logarithmic axis never ends for some numbers, and has no labels above 1e17. */
function scaleOf(lo, hi, log) {
  const big = Math.max(Math.abs(lo), Math.abs(hi)) || 1; /* hi - lo may be more than the largest number */
  const f = log ? Math.log10 : x => x / big, g = log ? x => 10 ** x : x => x * big, a = f(lo), span = f(hi) - a || 1;
  const powers = (x, y, digits, every) => {
    const out = [];
    for (let e = Math.floor(Math.log10(x) / every) * every; 10 ** e <= y; e += every)
      out.push(...digits.map(m => m * 10 ** e).filter(t => t >= x && t <= y));
    return out;
  };
  const decades = (x, y, n) => {
    if (!(x > 0 && y < Infinity)) return [];
    let out = powers(x, y, [1, 2, 5], 1);
    for (let every = 1; out.length > n + 2; every++) out = powers(x, y, [1], every);
    return out.length > 1 ? out : ticks(x, y, n);
  };
  const from = p => g(a + p * span);
  return { from, to: x => (x === null ? null : (f(x) - a) / span),
    ticks: (p, q, n) => (log ? decades : ticks)(from(Math.max(p, -1)), from(Math.min(q, 2)), n) };
}

const SECONDS = { from: t => t, to: t => t, ticks };

const Charts = (() => {
  const FONT = "12px system-ui, sans-serif";

  const axis = (more = {}) => Object.assign(
    {
      stroke: Theme.css("--soft"),
      grid: { stroke: Theme.css("--faint"), width: 1 },
      ticks: { stroke: Theme.css("--line"), width: 1, size: 5 },
      font: FONT,
      labelFont: FONT,
      labelSize: 18
    },
    more);

  /* An axis with our own marks, one for so many pixels. */
  function marked(scale, pixels, more) {
    let marks = [];
    return axis(Object.assign(
      {
        incrs: [1e300],
        filter: (u, places) => places,
        values: () => marks.map(label),
        splits: (u, i, min, max) => {
          marks = scale.ticks(
            min, max,
            Math.max(2, (u.axes[i].side % 2 ? u.bbox.height : u.bbox.width) / (devicePixelRatio || 1) / pixels));
          return marks.map(scale.to);
        }
      },
      more));
  }

  const label = x => {
    const a = Math.abs(x), short = Number(x.toPrecision(5));
    return a >= 1e6 || (a > 0 && a < 1e-4) ? short.toExponential().replace("+", "")
      : a >= 1000                          ? Format.count(x)
                                           : String(short);
  };

  /* Names at the ends of the lines: each at the height of its line, but not on another. */
  function direct(u, entries) {
    const ctx = u.ctx, ratio = devicePixelRatio || 1, gap = 15 * ratio, { left, top, width, height } = u.bbox;
    const places =
      entries.map(e => ({ e, y: u.valToPos(e.place, e.scale || "y", true) })).filter(p => Number.isFinite(p.y));
    places.sort((a, b) => a.y - b.y || a.e.rank - b.e.rank);
    let above = top - gap / 2;
    for (const p of places) { p.y = Math.max(p.y, above + gap); above = p.y; }
    let below = top + height + gap / 2;
    for (const p of [...places].reverse()) { p.y = Math.min(p.y, below - gap); below = p.y; }
    ctx.save();
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const p of places) { ctx.fillStyle = p.e.colour; ctx.fillText(p.e.text, left + width + 8 * ratio, p.y); }
    ctx.restore();
  }

  function measure(texts) {
    const ctx = measure.ctx || (measure.ctx = document.createElement("canvas").getContext("2d"));
    ctx.font = FONT;
    return Math.max(0, ...texts.map(t => ctx.measureText(t).width));
  }

  const short = (name, max) => (name.length > max ? `${name.slice(0, max - 1)}…` : name);

  /* Arrow keys move the cursor, + - 0 zoom, as on the Gantt. */
  function keys(box, u, full) {
    let at = 0;
    box.setAttribute("tabindex", "0");
    box.addEventListener("keydown", e => {
      const xs = u.data[0], s = u.scales.x, span = s.max - s.min;
      if (e.ctrlKey || e.metaKey || e.altKey || !xs.length) return;
      const zoom = f => {
        const m = (s.min + s.max) / 2;
        u.setScale("x", { min: m - span * f / 2, max: m + span * f / 2 });
      };
      if (e.key === "ArrowLeft" || e.key === "ArrowRight") {
        at = Math.max(0, Math.min(xs.length - 1, (u.cursor.idx ?? at) + (e.key === "ArrowLeft" ? -1 : 1)));
        u.setCursor({ left: u.valToPos(xs[at], "x"), top: 10 });
      } else if (e.key === "+" || e.key === "=") zoom(0.5);
      else if (e.key === "-") zoom(2);
      else if (e.key === "0") u.setScale("x", full());
      else return;
      e.preventDefault();
    });
  }

  function plot(parent, options, data, label, readout) {
    const box = make("div", { class: "figure", role: "img", "aria-label": label }, parent);
    const line = make("div", { class: "readout", "aria-live": "polite" }, parent, readout(null));
    options.width = Math.max(240, box.clientWidth || parent.clientWidth || 800);
    options.legend = { show: false };
    options.hooks = Object.assign({}, options.hooks, {
      setCursor: [u => {
        line.textContent = readout(u.cursor.idx);
      }]
    });
    const u = new uPlot(options, data, box);
    keys(box, u, () => ({ min: data[0][0], max: data[0][data[0].length - 1] }));
    return { u, box, resize: () => u.setSize({ width: Math.max(240, box.clientWidth), height: options.height }) };
  }

  /* The value of a run at a time; after its end the last value, before its first point nothing. A time that is
   * there twice has the first value of the run at that time, and then the last. */
  function sample(points, value, times) {
    const out = new Array(times.length).fill(null), known = points.filter(p => Number.isFinite(value(p)));
    let j = 0;
    times.forEach((t, i) => {
      const one = times[i + 1] === t;
      while (j < known.length && known[j].time <= t && !(one && j && known[j - 1].time === t)) j++;
      if (j === 0) return;
      const a = known[j - 1], b = known[j];
      out[i] = b && b.time > a.time ? value(a) + (value(b) - value(a)) * (t - a.time) / (b.time - a.time) : value(a);
    });
    return out;
  }

  /* The times to draw, in order. A time at which one of the lists of points has two is there twice: a step. */
  function thin(times, max, lists) {
    const sorted = [...new Set(times)].sort((a, b) => a - b), every = Math.ceil(sorted.length / max);
    const steps =
      new Set(lists.flatMap(l => l.filter((p, i) => i && l[i - 1].time === p.time).map(p => p.time)));
    return sorted.filter((t, i) => i % every === 0 || i === sorted.length - 1 || steps.has(t))
      .flatMap(t => (steps.has(t) ? [t, t] : [t]));
  }

  /* Student's t: 97.5 %, as in the tables of a race. */
  const T95 = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131
  ];
  function half95(xs, mean) {
    const n = xs.length, square = xs.reduce((a, x) => a + (x - mean) ** 2, 0);
    return n < 2 ? 0 : (T95[n - 2] || 1.96 + 2.5 / (n - 1)) * Math.sqrt(square / (n - 1) / n);
  }

  /* Mean and its 95 % interval per group, cut at the lowest and highest value of all; the line of a group ends
   * where its last run ended. */
  function curves(groups, metric, log) {
    const value = metric.value;
    const lists = groups.flatMap(g => g.runs.map(r => r.points.filter(p => Number.isFinite(value(p)))));
    const known = lists.flat().map(p => p.time);
    const first =
      log ? extent(known)[1] / 1000 : 0; /* a first evaluation long before the others would leave the figure empty */
    const times = thin(known.filter(t => t >= first), 2000, lists);
    const [lowest, highest] =
      extent(groups.flatMap(g => g.runs.flatMap(r => r.points.map(value).filter(Number.isFinite))));
    const series = groups.map(g => {
      const end = Math.max(...g.runs.map(r => (r.points.length ? r.points[r.points.length - 1].time : 0)));
      const all = g.runs.map(r => sample(r.points, value, times)), mid = [], low = [], high = [];
      times.forEach((t, i) => {
        const xs = t <= end ? all.map(a => a[i]).filter(x => x !== null && Number.isFinite(x)) : [];
        const whole = xs.length === all.length;
        const mean = xs.reduce((a, b) => a + b, 0) / xs.length, half = half95(xs, mean);
        mid.push(whole ? mean : null);
        low.push(whole ? Math.max(lowest, mean - half) : null);
        high.push(whole ? Math.min(highest, mean + half) : null);
      });
      return { mid, low, high };
    });
    return { times, series };
  }

  const extent = xs => xs.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);

  const decades = xs => {
    let lo = Infinity, hi = 0;
    for (const x of xs) { lo = Math.min(lo, x); hi = Math.max(hi, x); }
    return lo > 0 && hi >= 30 * lo;
  };

  function comparison(parent, load, metricName, logTime) {
    const metric = Data.METRICS[metricName], groups = load.groups, { times, series } = curves(groups, metric, logTime);
    if (!times.length) { make("p", { class: "note" }, parent, "There are no evaluations to draw."); return null; }
    const target = metricName === load.targetMetric ? load.target : NaN, data = [times], lines = [{}], bands = [],
          ends = [];
    groups.forEach((g, i) => {
      const colour = Theme.series(i), s = series[i], many = g.runs.length > 1;
      data.push(s.mid);
      lines.push({ stroke: colour, width: 2, points: { show: times.length < 3 }, dash: i < 8 ? undefined : [6, 4] });
      if (many) {
        data.push(s.high, s.low);
        lines.push(
          { stroke: "transparent", points: { show: false } }, { stroke: "transparent", points: { show: false } });
        bands.push({ series: [data.length - 2, data.length - 1], fill: colour + "2e" });
      }
      const known = s.mid.filter(x => x !== null);
      if (!known.length) return;
      const when = metricName === load.targetMetric && Format.time(g).replace(/ ±.*? (?=\S+$)/, " ");
      ends.push({
        value: when ? target : known[known.length - 1],
        text: short(g.name, 26) + (when ? `  ${when}` : ""),
        colour,
        rank: i
      });
    });
    const values = data.slice(1).flat().filter(x => x !== null), log = decades(values);
    if (Number.isFinite(target)) values.push(target);
    const [lo, hi] = extent(values), y = scaleOf(lo, hi, log), x = scaleOf(times[0], times[times.length - 1], logTime);
    const narrow = parent.clientWidth < 560; /* the names are in the table below */
    for (const e of ends) e.place = y.to(e.value);
    return plot(
      parent, {
        height: 340,
        padding: [10, narrow ? 12 : 16 + measure(ends.map(e => e.text)), 0, 0],
        scales: {
          x: { time: false, range: (u, min, max) => [min, max > min ? max : min + 1] },
          y: { range: [lo === hi ? -0.5 : -0.04, lo === hi ? 0.5 : 1.04] }
        },
        axes: [marked(x, 80, { label: "time (s)", size: 30 }), marked(y, 40, { label: metric.name, size: 58 })],
        series: lines,
        bands,
        cursor: { drag: { x: true, y: false }, points: { show: false } },
        hooks: {
          draw: [u => {
            if (Number.isFinite(target)) {
              const ctx = u.ctx, at = u.valToPos(y.to(target), "y", true), ratio = devicePixelRatio || 1;
              ctx.save();
              ctx.strokeStyle = ctx.fillStyle = Theme.css("--soft");
              ctx.setLineDash([5 * ratio, 4 * ratio]);
              ctx.beginPath();
              ctx.moveTo(u.bbox.left, at);
              ctx.lineTo(u.bbox.left + u.bbox.width, at);
              ctx.stroke();
              ctx.font = `${11 * ratio}px system-ui, sans-serif`;
              ctx.textBaseline = "bottom";
              ctx.textAlign = "left";
              ctx.fillText(`target ${Format.metric(target)}`, u.bbox.left + 6 * ratio, at - 3 * ratio);
              ctx.restore();
            }
            if (!narrow) direct(u, ends);
          }]
        }
      },
      [times.map(x.to), ...data.slice(1).map(s => s.map(y.to))],
      `${metric.name} against time for ${
        groups.map(g => g.name).join(", ")}. Arrow keys read values, + and - zoom, 0 shows everything.`,
      i =>
        (i === null || i === undefined ? narrow
             ? "Touch the lines to read values."
             : "Point at the lines to read values; drag to zoom, double-click to see everything."
                                       : `${Format.seconds(times[i])}: ` +
             groups.map((g, k) => (series[k].mid[i] === null ? "" : `${g.name} ${Format.metric(series[k].mid[i])}`))
               .filter(Boolean)
               .join(", ")));
  }

  /* K and the bound as steps, and the loss, on the time of the Gantt. */
  function knobs(parent, run, onView) {
    const h = run.history, end = h.time, bounded = h.knobs.some(k => Number.isFinite(k.bound));
    const points = run.points.filter(p => Number.isFinite(p.loss) && p.time <= end);
    const times = thin([0, end, ...h.knobs.map(k => k.time), ...points.map(p => p.time)], 6000, [points]);
    let j = 0;
    const k = [], bound = [];
    for (const t of times) {
      while (j + 1 < h.knobs.length && h.knobs[j + 1].time <= t) j++;
      k.push(h.knobs.length ? h.knobs[j].k : null);
      bound.push(h.knobs.length && Number.isFinite(h.knobs[j].bound) ? h.knobs[j].bound : null);
    }
    const loss = sample(points, p => p.loss, times), step = uPlot.paths.stepped({ align: 1 });
    const most = Math.max(1, extent(k.filter(x => x !== null))[1], extent(bound.filter(x => x !== null))[1]);
    const known = loss.filter(x => x !== null), y = scaleOf(0, most, false),
          right = scaleOf(...extent(known), decades(known));
    const colours = [0, 1, 2].map(Theme.series),
          whole = Object.assign({}, y, { ticks: (...a) => y.ticks(...a).filter(Number.isInteger) });
    return plot(
      parent, {
        height: 190,
        padding: [10, points.length ? 8 : 60, 0, 0],
        scales: { x: { time: false }, y: { range: [0, 1.08] }, loss: { range: [-0.04, 1.04] } },
        axes: [
          marked(SECONDS, 80, { label: "time (s)", size: 30 }),
          marked(whole, 30, { label: bounded ? "K, bound" : "K", size: 40 }),
          ...(
            points.length
              ? [marked(right, 40, { scale: "loss", side: 1, label: "training loss", size: 48, grid: { show: false } })]
              : [])
        ],
        series: [
          {}, { stroke: colours[0], width: 2, paths: step, points: { show: false } },
          { stroke: colours[1], width: 2, dash: [6, 3], paths: step, points: { show: false } },
          ...(points.length ? [{ scale: "loss", stroke: colours[2], width: 1.5, points: { show: false } }] : [])
        ],
        cursor: { drag: { x: true, y: false }, points: { show: false } },
        hooks: {
          setScale: [(u, key) => {
            if (key === "x" && onView) onView(u.scales.x.min, u.scales.x.max);
          }]
        }
      },
      [times, k.map(y.to), bound.map(y.to), ...(points.length ? [loss.map(right.to)] : [])],
      `K${bounded ? ", the staleness bound" : ""} and the training loss over time`,
      i =>
        (i === null || i === undefined ? legendText(k, bound, bounded, points.length)
                                       : `${Format.seconds(times[i])}: K ${Format.count(k[i])}${
                                           bounded ? `, bound ${bound[i] === null ? "none" : Format.count(bound[i])}`
                                                   : ""}${points.length ? `, loss ${Format.metric(loss[i])}` : ""}`));
  }

  function legendText(k, bound, bounded, loss) {
    const [lo, hi] = extent(k.filter(x => x !== null));
    return `Blue: K, ${lo === hi ? `always ${lo}` : `between ${lo} and ${hi}`}. ${
      bounded ? "Dashed: the staleness bound." : "There is no staleness bound."}${loss ? " Thin: training loss." : ""}`;
  }

  function staleness(parent, h) {
    const bins = h.staleness.bins, all = bins.reduce((s, b) => s + b[1], 0);
    if (!all) { make("p", { class: "note" }, parent, "No result was applied."); return null; }
    const dense = [], top = bins[bins.length - 1][0];
    for (let i = 0; i <= Math.min(top, 63); i++) dense.push([i, (bins.find(b => b[0] === i) || [0, 0])[1]]);
    dense.push(...bins.filter(b => b[0] >= 64));
    const xs = dense.map((_, i) => i), ys = dense.map(b => b[1] / all);
    const last = dense.length - 1, every = Math.ceil(dense.length / 10);
    const name = i =>
      (!dense[i]           ? ""
         : dense[i][0] < 64 ? String(dense[i][0])
         : i === last       ? `${dense[i][0]}+`
                            : `${dense[i][0]}–${2 * dense[i][0] - 1}`);
    const marks = xs.filter(i => i === last || (i % every === 0 && last - i > every / 2));
    return plot(
      parent, {
        height: 220,
        padding: [10, 12, 0, 0],
        scales: { x: { time: false, range: [-0.6, dense.length - 0.4] }, y: { range: [0, Math.max(...ys) * 1.06] } },
        axes: [
          axis({
            label: "staleness (updates)",
            size: 30,
            splits: () => marks,
            values: (u, v) => v.map(name)
          }),
          axis({
            label: "share of results",
            size: 58,
            splits: (u, i, min, max) => ticks(min, max, 5),
            values: (u, v) => v.map(x => `${Number((100 * x).toPrecision(3))} %`)
          })
        ],
        series: [
          {}, {
            stroke: Theme.css("--applied"),
            fill: Theme.css("--applied") + "aa",
            paths: uPlot.paths.bars({ size: [0.8, 60] }),
            points: { show: false }
          }
        ],
        cursor: { drag: { x: false, y: false }, points: { show: false } }
      },
      [xs, ys], "Histogram of the staleness of applied results",
      i =>
        (i === null || i === undefined
           ? `Mean ${Format.three(h.staleness.mean)}, largest ${Format.count(h.staleness.max)}; ${
               Format.count(all)} results.`
           : `Staleness ${name(i)}: ${Format.count(dense[i][1])} results (${Format.percent(ys[i])})`));
  }

  return { comparison, knobs, staleness, short };
})();
