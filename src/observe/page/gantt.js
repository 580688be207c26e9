/* The Gantt of workers: one row per worker, every task coloured by its fate. Rows are computed pixel by
 * pixel: a pixel has the mixture of what happened in its time, so that 10^5 tasks on a screen cost as
 * much as ten, and nothing is left out. Above 64 workers the rows shrink and the picture becomes a heat
 * map of worker and time. */
const FATES = [
  { key: "applied", name: "applied", css: "--applied" },
  { key: "sent", name: "sending", css: "--sent" },
  { key: "dropped", name: "dropped", css: "--dropped" },
  { key: "cancelled", name: "cancelled", css: "--cancelled" },
  { key: "lost", name: "lost", css: "--lost" },
  { key: "rejected", name: "rejected", css: "--rejected" },
  { key: "running", name: "running at the end", css: "--unfinished" }
];

class Gantt {
  /* `onView(t0, t1)` is called when the user moves. */
  constructor(parent, run, onView) {
    this.run = run;
    this.history = run.history;
    this.onView = onView;
    this.end = Math.max(this.history.time || 0, 1e-9);
    this.t0 = 0;
    this.t1 = this.end;
    this.top = 0;
    this.order = this.history.rows.map((_, i) => i);
    this.chosen = -1;
    this.build(parent);
    this.sort(this.order.length > 64 ? "held" : "number");
    this.resize();
  }

  build(parent) {
    const bar = make("div", { class: "bar" }, parent);
    const button = (text, title, go) => {
      const b = make("button", { type: "button", title }, bar, text);
      b.addEventListener("click", go);
    };
    button("−", "Zoom out (-)", () => this.zoom(2));
    button("+", "Zoom in (+)", () => this.zoom(0.5));
    button("Whole run", "Show the whole run (0)", () => this.show(0, this.end));
    make("span", { class: "grow" }, bar);
    const label = make("label", {}, bar, "Workers by ");
    this.sorter = make("select", {}, label);
    for (const [value, text] of [
           ["number", "number"], ["held", "time they held up others"], ["wasted", "wasted time"],
           ["idle", "idle time"]])
      make("option", { value }, this.sorter, text);
    this.sorter.addEventListener("change", () => { this.sort(this.sorter.value); this.draw(); });
    this.canvas = make("canvas", { tabindex: "0", role: "img", class: "gantt" }, parent);
    this.readout = make("div", { class: "readout", "aria-live": "polite" }, parent);
    const legend = make("div", { class: "legend" }, parent);
    for (const f of FATES) {
      const n = this.history.fates[f.key];
      if (f.key !== "sent" && !n) continue;
      if (f.key === "sent" && !this.history.rows.some(r => r.sent > 0)) continue;
      const item = make("span", {}, legend);
      make("i", { style: `background:var(${f.css})` }, item);
      item.append(f.key === "sent" ? f.name : `${f.name} ${Format.count(n)}`);
    }
    const idle = make("span", {}, legend);
    make("i", { class: "idle", style: "background:var(--idle)" }, idle);
    idle.append("idle");
    this.listen();
  }

  listen() {
    const c = this.canvas;
    c.addEventListener("keydown", e => this.key(e));
    c.addEventListener("wheel", e => this.wheel(e), { passive: false });
    c.addEventListener("dblclick", e => this.zoom(0.25, this.timeAt(e)));
    c.addEventListener("pointerdown", e => {
      this.grip = { x: e.offsetX, y: e.offsetY, t0: this.t0, t1: this.t1, top: this.top };
      c.setPointerCapture(e.pointerId);
    });
    c.addEventListener("pointerup", () => { this.grip = null; });
    c.addEventListener("pointermove", e => {
      if (!this.grip) return this.point(e);
      const dt = (this.grip.x - e.offsetX) / this.width * (this.grip.t1 - this.grip.t0);
      this.top = this.grip.top + (this.grip.y - e.offsetY);
      this.show(this.grip.t0 + dt, this.grip.t1 + dt);
    });
    c.addEventListener("pointerleave", () => { if (this.chosen < 0) this.readout.textContent = this.summary(); });
  }

  key(e) {
    const span = this.t1 - this.t0, row = Math.max(this.rowHeight, 12);
    const keys = {
      ArrowLeft: () => this.show(this.t0 - span / 8, this.t1 - span / 8),
      ArrowRight: () => this.show(this.t0 + span / 8, this.t1 + span / 8),
      ArrowUp: () => { this.top -= row; this.draw(); }, ArrowDown: () => { this.top += row; this.draw(); },
      Home: () => this.show(0, span), End: () => this.show(this.end - span, this.end),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.show(0, this.end),
      n: () => this.step(1), p: () => this.step(-1),
      Escape: () => { this.chosen = -1; this.readout.textContent = this.summary(); this.draw(); }
    };
    if (e.ctrlKey || e.metaKey || e.altKey || !keys[e.key]) return;
    e.preventDefault();
    keys[e.key]();
  }

  /* The wheel zooms while the picture has the focus or Ctrl is pressed; otherwise the page scrolls. */
  wheel(e) {
    const focused = document.activeElement === this.canvas;
    if (!e.ctrlKey && !focused) return;
    e.preventDefault();
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      const dt = (e.deltaX || e.deltaY) / this.width * (this.t1 - this.t0);
      this.show(this.t0 + dt, this.t1 + dt);
    } else this.zoom(Math.exp(e.deltaY / 400), this.timeAt(e));
  }

  timeAt(e) { return this.t0 + (e.offsetX - this.left) / this.width * (this.t1 - this.t0); }

  zoom(factor, about = (this.t0 + this.t1) / 2) {
    this.show(about - (about - this.t0) * factor, about + (this.t1 - about) * factor);
  }

  show(t0, t1, quiet = false) {
    const span = Math.min(Math.max(t1 - t0, this.end * 1e-7), this.end);
    this.t0 = Math.min(Math.max(0, t0), this.end - span);
    this.t1 = this.t0 + span;
    this.draw();
    if (!quiet && this.onView) this.onView(this.t0, this.t1);
  }

  /* What is shown, for the same run with more data: the whole run stays whole, and the end stays in sight. */
  window() {
    const last = this.end * (1 - 1e-9), span = this.t1 - this.t0;
    return { t0: this.t0, span, whole: span >= last, atEnd: this.t1 >= last };
  }

  restore(w) { if (!w.whole) this.show(w.atEnd ? this.end - w.span : w.t0, w.atEnd ? this.end : w.t0 + w.span); }

  sort(by) {
    const rows = this.history.rows, value = { held: r => r.heldUp, wasted: r => r.wasted, idle: r => r.idle }[by];
    this.order = rows.map((_, i) => i);
    if (value) this.order.sort((a, b) => (value(rows[b]) || 0) - (value(rows[a]) || 0) || a - b);
    this.sorter.value = by;
    this.top = 0;
  }

  resize() {
    const n = Math.max(1, this.order.length), ratio = window.devicePixelRatio || 1;
    const box = this.canvas.parentElement, style = getComputedStyle(box);
    const room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) || 900;
    this.rowHeight = n <= 64 ? Math.max(6, Math.min(22, Math.floor(480 / n))) : Math.max(2, Math.floor(560 / n));
    this.left = this.rowHeight >= 10 ? 34 : 8;
    this.width = Math.max(100, room - this.left);
    this.rowsHeight = Math.min(n * this.rowHeight, 560);
    this.ratio = ratio;
    this.canvas.width = Math.round((this.left + this.width) * ratio);
    this.canvas.height = Math.round((this.rowsHeight + 22) * ratio);
    this.canvas.style.width = `${this.left + this.width}px`;
    this.canvas.style.height = `${this.rowsHeight + 22}px`;
    this.image = null;
    this.draw();
  }

  colours() {
    this.colour = FATES.map(f => Theme.rgb(f.css));
    this.idle = Theme.rgb("--idle");
    this.card = Theme.rgb("--card");
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }

  /* --- one row ------------------------------------------------------------------------------ */

  /* Adds a span to the coverage of kind k: [x0, x1) in pixels, with a weight. */
  cover(k, x0, x1, weight) {
    const cov = this.coverage, w = this.pixels;
    if (x1 <= 0 || x0 >= w) return;
    if (x0 < 0) x0 = 0;
    if (x1 > w) x1 = w;
    let a = Math.floor(x0);
    const b = Math.floor(x1), base = k * w;
    if (a === b) { cov[base + a] += (x1 - x0) * weight; return; }
    cov[base + a] += (a + 1 - x0) * weight;
    for (a++; a < b; a++) cov[base + a] += weight;
    if (b < w) cov[base + b] += (x1 - b) * weight;
  }

  coverCells(worker, scale) {
    const c = this.history.cells, t = this.history.tasks, until = t ? t.complete : Infinity;
    if (!c || !(until > 0) || this.t0 >= until) return;
    const row = c.rows[worker] || "", kinds = [0, 1, -1, 3];
    const last = Math.min(row.length / 4, Math.ceil(Math.min(this.t1, until) / c.width));
    for (let i = Math.max(0, Math.floor(this.t0 / c.width)); i < last; i++)
      for (let k = 0; k < 4; k++) {
        const level = row.charCodeAt(4 * i + k) - 48;
        if (level > 0 && kinds[k] >= 0)
          this.cover(
            kinds[k], (i * c.width - this.t0) * scale, (Math.min((i + 1) * c.width, until) - this.t0) * scale,
            Math.min(1, level / 63));
      }
  }

  coverTasks(worker, scale) {
    const t = this.history.tasks;
    if (!t) return;
    const last = t.first[worker + 1], fate = [0, 2, 3, 4, 5, 6];
    let lo = t.first[worker], hi = last;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (t.to[mid] <= this.t0) lo = mid + 1; else hi = mid; }
    for (let i = lo; i < last && t.from[i] < this.t1; i++) {
      let x0 = (t.from[i] - this.t0) * scale;
      const x1 = (t.to[i] - this.t0) * scale, s = x1 - t.sent[i] * scale;
      if (x1 - x0 > 5 && this.rowHeight >= 6) { /* a faint line between tasks that are wide enough */
        this.cover(fate[t.fate[i]], x0, x0 + this.ratio, 0.45);
        x0 += this.ratio;
      }
      if (t.sent[i] > 0) { this.cover(fate[t.fate[i]], x0, Math.max(x0, s), 1); this.cover(1, Math.max(x0, s), x1, 1); }
      else this.cover(fate[t.fate[i]], x0, x1, 1);
      this.seen++;
    }
  }

  /* Mixes the colours of a row into this.line. */
  mix() {
    const w = this.pixels, cov = this.coverage, line = this.line, n = FATES.length;
    for (let x = 0; x < w; x++) {
      let r = 0, g = 0, b = 0, sum = 0;
      for (let k = 0; k < n; k++) {
        const c = cov[k * w + x];
        if (c === 0) continue;
        const colour = this.colour[k];
        r += c * colour[0]; g += c * colour[1]; b += c * colour[2]; sum += c;
      }
      if (sum < 1) {
        const rest = 1 - sum;
        r += rest * this.idle[0];
        g += rest * this.idle[1];
        b += rest * this.idle[2];
        sum = 1;
      }
      line[x] = 0xff000000 | (b / sum) << 16 | (g / sum) << 8 | (r / sum);
    }
  }

  paint() {
    const began = performance.now(), ctx = this.canvas.getContext("2d"), ratio = this.ratio;
    this.colours();
    this.pixels = Math.round(this.width * ratio);
    const height = Math.round(this.rowsHeight * ratio), rowH = this.rowHeight * ratio;
    if (!this.image || this.image.width !== this.pixels || this.image.height !== height) {
      this.image = ctx.createImageData(this.pixels, height);
      this.buffer = new Uint32Array(this.image.data.buffer);
      this.coverage = new Float32Array(this.pixels * FATES.length);
      this.line = new Uint32Array(this.pixels);
    }
    const total = this.order.length * this.rowHeight;
    this.top = Math.max(0, Math.min(this.top, total - this.rowsHeight));
    const paper = 0xff000000 | this.card[2] << 16 | this.card[1] << 8 | this.card[0];
    this.buffer.fill(paper);
    this.seen = 0;
    const scale = this.pixels / (this.t1 - this.t0), gap = this.rowHeight >= 6 ? Math.round(ratio) : 0;
    for (let i = Math.floor(this.top / this.rowHeight); i < this.order.length; i++) {
      const y0 = Math.round(i * rowH - this.top * ratio), y1 = Math.round((i + 1) * rowH - this.top * ratio) - gap;
      if (y0 >= height) break;
      this.coverage.fill(0);
      this.coverCells(this.order[i], scale);
      this.coverTasks(this.order[i], scale);
      this.mix();
      for (let y = Math.max(0, y0); y < Math.min(y1, height); y++) this.buffer.set(this.line, y * this.pixels);
    }
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.canvas.width, this.canvas.height);
    ctx.putImageData(this.image, Math.round(this.left * ratio), 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.decorate(ctx);
    if (this.chosen < 0 && !this.readout.textContent) this.readout.textContent = this.summary();
    this.canvas.setAttribute(
      "aria-label",
      `Gantt of ${this.order.length} workers. ${
        this.summary()} Arrow keys move, + and - zoom, 0 shows the whole run, n and p go from task to task.`);
    this.milliseconds = performance.now() - began;
    this.frames = (this.frames || 0) + 1;
  }

  decorate(ctx) {
    ctx.font = "11px system-ui, sans-serif";
    ctx.fillStyle = Theme.css("--soft");
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    for (let i = 0; this.left > 10 && i < this.order.length; i++) {
      const y = i * this.rowHeight - this.top + this.rowHeight / 2;
      if (y > 0 && y < this.rowsHeight) ctx.fillText(String(this.order[i] + 1), this.left - 6, y);
    }
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    ctx.strokeStyle = Theme.css("--line");
    for (const t of ticks(this.t0, this.t1, Math.max(2, this.width / 110))) {
      const x = this.left + (t - this.t0) / (this.t1 - this.t0) * this.width;
      ctx.beginPath(); ctx.moveTo(x, this.rowsHeight); ctx.lineTo(x, this.rowsHeight + 4); ctx.stroke();
      if (x > this.left + 14 && x < this.left + this.width - 14)
        ctx.fillText(Format.tick(t, this.t1 - this.t0), x, this.rowsHeight + 7);
    }
    if (this.chosen < 0) return;
    const t = this.history.tasks, place = this.order.indexOf(this.chosenWorker);
    const x0 = this.left + Math.max(0, (t.from[this.chosen] - this.t0) / (this.t1 - this.t0) * this.width);
    const x1 = this.left + Math.min(this.width, (t.to[this.chosen] - this.t0) / (this.t1 - this.t0) * this.width);
    const y = place * this.rowHeight - this.top;
    if (x1 < this.left || x0 > this.left + this.width || y < -this.rowHeight || y > this.rowsHeight) return;
    ctx.strokeStyle = Theme.css("--text");
    ctx.lineWidth = 1.5;
    ctx.strokeRect(x0, y, Math.max(2, x1 - x0), this.rowHeight - 1);
    ctx.lineWidth = 1;
  }

  /* --- one task ----------------------------------------------------------------------------- */

  find(worker, time) {
    const t = this.history.tasks;
    for (let i = t ? t.first[worker] : 0; t && i < t.first[worker + 1]; i++)
      if (t.from[i] <= time && time < t.to[i]) return i;
    return -1;
  }

  /* At the beginning of a sentence. */
  called(worker) { return this.history.names[worker].replace("w", "W"); }

  describe(worker, i) {
    const t = this.history.tasks, f = FATES[[0, 2, 3, 4, 5, 6][t.fate[i]]].name;
    const parts = [
      `${this.called(worker)}, task ${t.number[i]}: ${f}`,
      `${Format.seconds(t.from[i])} to ${Format.seconds(t.to[i])} (${Format.seconds(t.to[i] - t.from[i])})`
    ];
    if (t.sent[i] > 0) parts.push(`${Format.seconds(t.sent[i])} of it sending`);
    if (t.fate[i] === 0) parts.push(`staleness ${t.lag[i]}`);
    return parts.join(", ");
  }

  point(e) {
    const place = Math.floor((e.offsetY + this.top) / this.rowHeight), worker = this.order[place],
          time = this.timeAt(e);
    if (worker === undefined || e.offsetX < this.left || e.offsetY > this.rowsHeight) return;
    const i = this.find(worker, time);
    this.readout.textContent =
      i >= 0 ? this.describe(worker, i) : `${this.called(worker)} at ${Format.seconds(time)}: no task`;
  }

  /* The next or previous task of the chosen worker, or of the first row. */
  step(by) {
    const t = this.history.tasks;
    if (!t || !t.n) return;
    if (this.chosen < 0) {
      this.chosenWorker = this.order[Math.floor(this.top / this.rowHeight)];
      this.chosen = t.first[this.chosenWorker];
      while (this.chosen < t.first[this.chosenWorker + 1] - 1 && t.to[this.chosen] <= this.t0) this.chosen++;
    } else this.chosen += by;
    this.chosen = Math.max(t.first[this.chosenWorker], Math.min(this.chosen, t.first[this.chosenWorker + 1] - 1));
    const span = this.t1 - this.t0, from = t.from[this.chosen];
    if (t.to[this.chosen] > this.t1 || from < this.t0) this.show(from - span / 10, from + span * 0.9);
    else this.draw();
    this.readout.textContent = this.describe(this.chosenWorker, this.chosen);
  }

  summary() {
    /* the tasks of the legend: the history has none for a task that began when the run ended */
    const t = this.history.tasks, fates = this.history.fates;
    const n = FATES.reduce((sum, f) => sum + (fates[f.key] || 0), 0) || (t ? t.all : 0);
    if (!t || !n) return "No tasks were recorded.";
    const kept = t.all > t.n
      ? ` The latest ${Format.count(t.n)} are shown one by one, those before as their share of the time.`
      : "";
    return `${Format.count(n)} tasks; ${Format.seconds(this.t0)} to ${Format.seconds(this.t1)}.${kept}`;
  }
}
