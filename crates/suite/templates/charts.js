// Draws the charts of the report from the JSON in the page, and answers to pointer, keys, legend and
// theme. What a chart is stands in src/report/chart.rs; colours are in style.css.

const SCREEN = { height: 280 };
const PRINT = { width: 690, gap: 20, height: 225 };

// ---- A chart --------------------------------------------------------------------------------

class View {
  constructor(chart, figure) {
    this.chart = chart;
    this.figure = figure;
    this.hidden = new Set();
    this.cursor = null;
    figure.classList.add(chart.kind);
    const note = figure.querySelector(".note");
    this.legend = html(figure, "div", "legend");
    this.plot = html(figure, "div", "plot");
    figure.append(note);
    this.svg = svg(this.plot, "svg", { "aria-hidden": "true" });
    this.tip = html(this.plot, "div", "tip");
    this.tip.hidden = true;
    this.tip.setAttribute("role", "status");
    this.fillLegend();
    this.listen();
    this.offerTable();
  }

  get series() {
    return this.chart.series.filter((series) => !this.hidden.has(series.name));
  }

  fillLegend() {
    for (const series of this.chart.series) {
      const button = html(this.legend, "button", series.colour);
      button.type = "button";
      html(button, "span", "swatch");
      html(button, "span", "", series.name);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        const hide = !this.hidden.has(series.name);
        if (hide) this.hidden.add(series.name); else this.hidden.delete(series.name);
        button.setAttribute("aria-pressed", String(!hide));
        this.point(null);
        this.draw(SCREEN);
      });
    }
  }

  draw({ width = this.plot.clientWidth, height }) {
    if (width < 50) return;
    [this.width, this.height] = [width, height];
    this.svg.replaceChildren();
    if (this.chart.kind === "bars") this.drawBars(); else this.drawPlane();
  }

  // -- bars

  drawBars() {
    const { chart, series, width } = this;
    const [bar, head, gap] = [17, 21, 14];
    const group = head + series.length * (bar + 3) + gap;
    const bottom = chart.categories.length * group;
    const values = series.flatMap((one) => one.points.map(([, y]) => y ?? 0));
    const top = Math.max(chart.y.range?.[1] ?? 0, ...values);
    const x = scale([0, top], [0, width - 135]);
    this.size(bottom + 36);
    const ticks = ticksOf([0, top], 5, chart.y.unit);
    sayTicks(ticks, chart.y.unit).forEach((text, index) => {
      const at = x(ticks[index]);
      svg(this.svg, "line", { class: "grid", x1: at, x2: at, y1: 0, y2: bottom });
      const anchor = index === 0 ? "start" : "middle";
      svg(this.svg, "text", { x: at, y: bottom + 15, "text-anchor": anchor }, text);
    });
    svg(this.svg, "text", { x: x(top), y: bottom + 32, "text-anchor": "end" },
      `${chart.y.label} \u2192`);
    chart.categories.forEach((category, index) => {
      const y = index * group;
      svg(this.svg, "text", { class: "category halo", x: 0, y: y + 14 }, category);
      series.forEach((one, row) => {
        this.drawBar(one, one.points[index][1], x, y + head + row * (bar + 3), bar);
      });
    });
  }

  drawBar(series, value, x, y, height) {
    const length = value === null ? 0 : Math.max(1, x(value));
    if (value !== null) {
      svg(this.svg, "rect", { class: `bar ${series.colour}`, x: 0, y, width: length, height });
    }
    const label = svg(this.svg, "text", { class: "value halo", x: length + 6, y: y + height - 4 },
      say(this.chart.y.unit, value));
    svg(label, "tspan", { dx: 6, class: `name ${series.colour}` }, series.name);
  }

  // -- lines, stacks and points

  drawPlane() {
    const { chart } = this;
    this.layers = this.layOut();
    const domain = { x: this.domainX(), y: this.domainY() };
    const ticks = ticksOf(domain.y, 5, chart.y.unit);
    const widest = Math.max(...sayTicks(ticks, chart.y.unit).map((text) => widthOf(text)));
    const names = this.layers.map((layer) => widthOf(layer.series.name, "600"));
    const longest = Math.max(0, ...names);
    const direct = longest < this.width / 4.5 && chart.series.length > 1;
    const area = {
      left: widest + 10,
      right: this.width - (direct ? longest + 10 : 22),
      top: chart.bands.length ? 42 : 28,
      bottom: this.height - 40,
    };
    this.area = area;
    this.size(this.height);
    this.x = scale(domain.x, [area.left, area.right]);
    this.y = scale(domain.y, [area.bottom, area.top]);
    this.drawAxes(domain, ticks);
    this.drawBands();
    for (const layer of this.layers) this.drawLayer(layer);
    this.drawLimits(domain.y);
    if (direct) this.nameLayers();
    this.overlay = svg(this.svg, "g", {});
  }

  // Each visible series with the height it is drawn at: of a stack, the sum of those below it.
  layOut() {
    const sums = [];
    return this.series.map((series) => ({
      series,
      points: series.points.map(([x, y], index) => {
        if (this.chart.kind !== "stack") return { x, y, value: y, from: 0 };
        const from = sums[index] ?? 0;
        sums[index] = from + (y ?? 0);
        return { x, y: sums[index], value: y, from };
      }),
    }));
  }

  domainX() {
    const { range, unit } = this.chart.x;
    const all = this.chart.series.flatMap((series) => series.points.map(([x]) => x));
    const [from, to] = [Math.min(...all), Math.max(...all)];
    if (!range) return unit === "seconds" ? [0, to || 1] : [from, to];
    // A given range is cut where there is nothing, to the tens, so that the points have room.
    return [Math.max(range[0], Math.floor((from - 3) / 10) * 10), range[1]];
  }

  domainY() {
    const heights = this.layers.flatMap((layer) => layer.points.map((point) => point.y ?? 0));
    const top = Math.max(0, ...heights) || 1;
    // A limit far above what is drawn would flatten it: then it is named instead.
    const limits = this.chart.limits.map((limit) => limit.y).filter((y) => y <= top * 5);
    const room = this.chart.kind === "points" ? 1.18 : 1.06;
    return [0, Math.max(top * room, ...limits.map((limit) => limit * 1.1))];
  }

  drawAxes(domain, ticks) {
    const { area, chart } = this;
    sayTicks(ticks, chart.y.unit).forEach((text, index) => {
      const y = this.y(ticks[index]);
      const line = { x1: area.left, x2: area.right, y1: y, y2: y };
      svg(this.svg, "line", { class: index === 0 ? "axis" : "grid", ...line });
      svg(this.svg, "text", { x: area.left - 8, y: y + 4, "text-anchor": "end" }, text);
    });
    const places = Math.max(2, Math.floor((area.right - area.left) / 55));
    const stops = ticksOf(domain.x, places, chart.x.unit);
    sayTicks(stops, chart.x.unit).forEach((text, index) => {
      const x = this.x(stops[index]);
      svg(this.svg, "line", { class: "axis", x1: x, x2: x, y1: area.bottom, y2: area.bottom + 4 });
      svg(this.svg, "text", { x, y: area.bottom + 18, "text-anchor": "middle" }, text);
    });
    svg(this.svg, "text", { x: 0, y: 12 }, chart.y.label);
    svg(this.svg, "text", { x: area.right, y: area.bottom + 35, "text-anchor": "end" },
      `${chart.x.label} \u2192`);
  }

  drawBands() {
    for (const band of this.chart.bands) {
      const [from, to] = [this.x(band.from), this.x(band.to)];
      const left = Math.max(from, this.area.left);
      if (from > this.area.left) {
        const edge = { x1: from, x2: from, y1: this.area.top - 18, y2: this.area.bottom };
        svg(this.svg, "line", { class: "edge", ...edge });
      }
      if (to - left > widthOf(band.name) + 6) {
        svg(this.svg, "text", { x: (left + to) / 2, y: this.area.top - 10, "text-anchor": "middle" },
          band.name);
      }
    }
  }

  drawLayer({ series, points }) {
    const group = svg(this.svg, "g", { class: `series ${series.colour}`, "data-name": series.name });
    const line = points.map((point) => [this.x(point.x), point.y === null ? null : this.y(point.y)]);
    if (this.chart.kind === "stack") {
      const back = points.map((point) => [this.x(point.x), this.y(point.from)]).reverse();
      const path = pathOf(line) + back.map(([x, y]) => `L${x.toFixed(1)},${y.toFixed(1)}`).join("");
      svg(group, "path", { class: "area", d: `${path}Z` });
      return;
    }
    svg(group, "path", { class: "line", d: pathOf(line) });
    // A line through one or two points is hard to see.
    if (this.chart.kind === "points" || points.length < 3) this.drawPoints(group, series, line);
  }

  drawPoints(group, series, line) {
    const taken = this.lineBoxes(line);
    const named = series === this.series[0] && series.names;
    line.forEach(([x, y], index) => {
      if (y === null) return;
      svg(group, "circle", { class: "point", cx: x, cy: y, r: 4.5 });
      if (named) this.namePoint(group, series.names[index], x, y, taken);
    });
  }

  // Small boxes along a line, where no name may lie.
  lineBoxes(line) {
    const known = line.filter(([, y]) => y !== null);
    return known.flatMap(([x, y], index) => {
      const [nextX, nextY] = known[index + 1] ?? [x, y];
      const steps = Math.ceil(Math.hypot(nextX - x, nextY - y) / 4);
      const along = Array.from({ length: steps + 1 }, (_, step) => step / (steps || 1));
      return along.map((part) => {
        const [at, height] = [x + (nextX - x) * part, y + (nextY - y) * part];
        return { left: at - 2, right: at + 2, top: height - 2, bottom: height + 2 };
      });
    });
  }

  // Above the point or below it, or to a side, where no other name and no line is; if there is no
  // such place, the crosshair tells.
  namePoint(group, name, x, y, taken) {
    const half = widthOf(name) / 2;
    const places = [[x, y - 10], [x - half, y - 10], [x + half, y - 10], [x, y + 19],
      [x + half, y + 19], [x - half, y + 19], [x - half - 10, y + 4]];
    for (const [centre, baseline] of places) {
      const middle = Math.min(Math.max(centre, half), this.width - half);
      const box = {
        left: middle - half - 3, right: middle + half + 3, top: baseline - 11, bottom: baseline + 2,
      };
      const overlaps = (other) => box.left < other.right && other.left < box.right
        && box.top < other.bottom && other.top < box.bottom;
      if (taken.some(overlaps) || box.bottom > this.area.bottom) continue;
      taken.push(box);
      svg(group, "text", { class: "halo", x: middle, y: baseline, "text-anchor": "middle" }, name);
      return;
    }
  }

  drawLimits([, top]) {
    const { area, chart } = this;
    for (const limit of chart.limits) {
      const text = `${limit.name}, ${say(chart.y.unit, limit.y)}`;
      const place = { class: "limit-name halo", x: area.right, "text-anchor": "end" };
      if (limit.y > top) {
        const times = digits(limit.y / top);
        svg(this.svg, "text", { ...place, y: area.top }, `\u2191 ${text} (${times} \u00d7 the top)`);
        continue;
      }
      const y = this.y(limit.y);
      svg(this.svg, "line", { class: "limit", x1: area.left, x2: area.right, y1: y, y2: y });
      svg(this.svg, "text", { ...place, y: y - 6 }, text);
    }
  }

  // The name of each series at its end, so that nobody has to look up a colour.
  nameLayers() {
    const labels = this.layers.flatMap(({ series, points }) => {
      const end = points.findLast((point) => point.value !== null);
      if (!end) return [];
      const height = this.chart.kind === "stack" ? (end.from + end.y) / 2 : end.y;
      return [{ y: this.y(height) + 4, series }];
    });
    for (const label of spread(labels, 15, this.area.top + 4, this.area.bottom)) {
      svg(this.svg, "text", { class: `name ${label.series.colour}`, x: this.area.right + 8, y: label.y },
        label.series.name);
    }
  }

  size(height) {
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.svg.setAttribute("height", height);
  }

  // -- the crosshair

  listen() {
    if (this.chart.kind === "bars") return;
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "group");
    this.plot.setAttribute("aria-label",
      `${this.chart.title}. Chart; arrow keys move through its figures.`);
    this.plot.addEventListener("pointermove", (event) => {
      const { left, width } = this.plot.getBoundingClientRect();
      this.point(this.nearest(this.x.invert(((event.clientX - left) * this.width) / width)));
    });
    this.plot.addEventListener("pointerleave", () => this.point(null));
    this.plot.addEventListener("blur", () => this.point(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
  }

  get stops() {
    const all = this.series.flatMap((series) => series.points.map(([x]) => x));
    return [...new Set(all)].sort((left, right) => left - right);
  }

  nearest(x) {
    let best = null;
    for (const stop of this.stops) {
      if (best === null || Math.abs(stop - x) < Math.abs(best - x)) best = stop;
    }
    return best;
  }

  key(event) {
    const stops = this.stops;
    const at = stops.indexOf(this.cursor);
    const stride = event.shiftKey ? 10 : 1;
    const to = {
      ArrowLeft: at < 0 ? stops.length - 1 : Math.max(0, at - stride),
      ArrowRight: at < 0 ? 0 : Math.min(stops.length - 1, at + stride),
      Home: 0,
      End: stops.length - 1,
    }[event.key];
    if (event.key === "Escape") this.point(null);
    if (to === undefined) return;
    event.preventDefault();
    this.point(stops[to] ?? null);
  }

  // Shows the figures at an x, or nothing.
  point(x) {
    this.cursor = x;
    this.overlay?.replaceChildren();
    this.tip.hidden = x === null;
    if (x === null) return;
    const { area, chart } = this;
    const pixel = this.x(x);
    svg(this.overlay, "line", { class: "cross", x1: pixel, x2: pixel, y1: area.top, y2: area.bottom });
    this.tip.replaceChildren();
    const title = html(this.tip, "b", "", say(chart.x.unit, x));
    const tolerance = (this.x.invert(area.right) - this.x.invert(area.left)) / 50;
    const layers = chart.kind === "stack" ? [...this.layers].reverse() : this.layers;
    for (const { series, points } of layers) {
      const near = points.reduce((best, point) =>
        (Math.abs(point.x - x) < Math.abs(best.x - x) ? point : best));
      if (Math.abs(near.x - x) > tolerance) continue;
      if (series.names) title.textContent = `${series.names[points.indexOf(near)]}, ${say(chart.x.unit, x)} from RAM`;
      this.tell(series, near);
    }
    if (chart.kind === "stack") this.tellSum(layers[0], x);
    const offset = (pixel / this.width) * this.plot.clientWidth;
    const beyond = offset + 14 + this.tip.offsetWidth > this.plot.clientWidth;
    this.tip.style.left = `${Math.max(0, beyond ? offset - 14 - this.tip.offsetWidth : offset + 14)}px`;
  }

  tell(series, point) {
    const row = html(this.tip, "div", series.colour);
    html(row, "span", "swatch");
    html(row, "span", "", series.name);
    html(row, "span", "", say(this.chart.y.unit, point.value));
    if (point.value === null) return;
    const place = { cx: this.x(point.x), cy: this.y(point.y), r: 4 };
    svg(this.overlay, "circle", { class: `point ${series.colour}`, ...place });
  }

  tellSum(top, x) {
    const row = html(this.tip, "div", "");
    html(row, "span");
    html(row, "span", "", "Together");
    const point = top.points.find((one) => one.x === x);
    html(row, "span", "", say(this.chart.y.unit, point ? point.y : null));
  }

  // -- the figures as a table, made when it is asked for

  offerTable() {
    const rows = new Set(this.chart.series.flatMap((series) => series.points.map(([x]) => x))).size;
    const details = html(this.figure, "details", "data");
    html(details, "summary", "", `Data (${rows} rows)`);
    details.addEventListener("toggle", () => {
      if (details.open && !details.querySelector("table")) this.fillTable(details);
    });
  }

  fillTable(details) {
    const { chart } = this;
    const region = html(details, "div", "scroll");
    region.tabIndex = 0;
    const table = html(region, "table");
    const head = html(html(table, "thead"), "tr");
    for (const name of [chart.x.label, ...chart.series.map((series) => series.name)]) {
      html(head, "th", "", name).scope = "col";
    }
    const columns = chart.series.map((series) => new Map(series.points));
    const stops = [...new Set(columns.flatMap((column) => [...column.keys()]))];
    const body = html(table, "tbody");
    for (const x of stops.sort((left, right) => left - right)) {
      const row = html(body, "tr");
      html(row, "td", "", chart.categories[x] ?? say(chart.x.unit, x));
      for (const column of columns) {
        html(row, "td", "", column.has(x) ? say(chart.y.unit, column.get(x)) : "");
      }
    }
  }
}

// ---- The page -------------------------------------------------------------------------------

const views = JSON.parse(document.getElementById("chart-data").textContent)
  .map((chart) => new View(chart, document.getElementById(chart.id)));
const drawAll = (size) => views.forEach((view) => view.draw(size));
new ResizeObserver(() => drawAll(SCREEN)).observe(document.querySelector("main"));
// On paper as on a wide screen: charts of a section two beside each other, one alone in full width.
window.addEventListener("beforeprint", () => views.forEach((view) => {
  const alone = view.figure.matches(":only-child");
  const width = alone ? PRINT.width : (PRINT.width - PRINT.gap) / 2;
  view.draw({ width, height: PRINT.height });
}));
window.addEventListener("afterprint", () => drawAll(SCREEN));

// Auto follows the system; the choice lasts as long as the page.
const themes = ["auto", "light", "dark"];
const button = document.getElementById("theme");
button.hidden = false;
button.addEventListener("click", () => {
  const next = themes[(themes.indexOf(button.lastElementChild.textContent) + 1) % themes.length];
  document.documentElement.dataset.theme = next;
  button.lastElementChild.textContent = next;
});
