// What the charts are made of: figures as text, scales with round ticks, SVG elements. The page puts
// this before charts.js, both in one function, so that nothing of it is global.

// ---- Figures as text ------------------------------------------------------------------------

const digits = (value) => {
  const magnitude = Math.abs(value);
  if (Number.isInteger(value) || magnitude >= 99.95) return value.toFixed(0);
  return value.toFixed(magnitude >= 9.995 ? 1 : magnitude >= 0.1 ? 2 : 3);
};

const scaled = (step, suffixes) => (value) => {
  let index = 0;
  while (Math.abs(value) >= step * 0.9995 && index + 1 < suffixes.length) {
    value /= step;
    index += 1;
  }
  return digits(value) + suffixes[index];
};

const clock = (value) => {
  const seconds = Math.round(value);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
};

const BINARY = [" B", " KiB", " MiB", " GiB", " TiB"];
const DECIMAL = ["", " k", " M", " G", " T"];
const size = scaled(1024, BINARY);
const count = scaled(1000, DECIMAL);
const UNITS = {
  count,
  ops: (value) => `${count(value)} ops/s`,
  bytes: size,
  throughput: (value) => `${size(value)}/s`,
  ms: (value) => `${digits(value)} ms`,
  percent: (value) => `${value.toFixed(1)} %`,
  seconds: (value) => (value < 60 ? `${digits(value)} s` : `${clock(value)} min`),
};
const say = (unit, value) => (value === null ? "not measured" : UNITS[unit](value));

// The ticks of an axis as text: all in the unit of the largest, and the zero without one.
function sayTicks(ticks, unit) {
  const plain = (value) => String(Number(value.toPrecision(6)));
  if (unit === "seconds") return ticks.map(clock);
  const fixed = { ms: " ms", percent: " %" }[unit];
  const binary = unit === "bytes" || unit === "throughput";
  const step = binary ? 1024 : 1000;
  const largest = Math.max(...ticks);
  let power = 0;
  while (!fixed && largest >= step ** (power + 1) && power < 4) power += 1;
  const suffix = fixed ?? (binary ? BINARY : DECIMAL)[power] + (unit === "throughput" ? "/s" : "");
  return ticks.map((tick) => (tick === 0 ? "0" : plain(tick / step ** power) + suffix));
}

// ---- Scales ---------------------------------------------------------------------------------

const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200];

// The step between ticks: 1, 2, 2.5 or 5 of a unit that a reader counts in.
function stepFor(span, count, unit) {
  const rough = span / count;
  if (unit === "seconds") return CLOCK_STEPS.find((step) => step >= rough) ?? 86400;
  let base = 1;
  if (unit === "bytes" || unit === "throughput") while (span >= base * 1024) base *= 1024;
  const power = base * 10 ** Math.floor(Math.log10(rough / base));
  return power * [1, 2, 2.5, 5, 10].find((factor) => power * factor >= rough * 0.999);
}

function ticksOf([from, to], count, unit) {
  const step = stepFor(to - from || 1, count, unit);
  const ticks = [];
  for (let index = Math.ceil(from / step - 1e-9); index * step <= to + step * 1e-6; index++) {
    ticks.push(index * step);
  }
  return ticks;
}

const scale = ([from, to], [start, end]) => {
  const at = (value) => start + ((value - from) / (to - from || 1)) * (end - start);
  at.invert = (pixel) => from + ((pixel - start) / (end - start || 1)) * (to - from);
  return at;
};

// Widths of labels, so that they neither overlap nor are cut.
const ruler = document.createElement("canvas").getContext("2d");
function widthOf(text, weight = "") {
  ruler.font = `${weight} 12px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

// ---- SVG ------------------------------------------------------------------------------------

function svg(parent, name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    node.setAttribute(key, typeof value === "number" ? Number(value.toFixed(2)) : value);
  }
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function html(parent, name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

// A path through the points; a point without a figure breaks it.
function pathOf(points) {
  let path = "";
  let open = false;
  for (const [x, y] of points) {
    if (y === null) { open = false; continue; }
    path += `${open ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`;
    open = true;
  }
  return path;
}

// Moves labels apart that would lie on each other, keeping their order.
function spread(labels, gap, top, bottom) {
  labels.sort((left, right) => left.y - right.y);
  labels.forEach((label, index) => {
    label.y = Math.max(label.y, index ? labels[index - 1].y + gap : top);
  });
  for (let index = labels.length - 1; index >= 0; index--) {
    const below = index + 1 < labels.length ? labels[index + 1].y - gap : bottom;
    labels[index].y = Math.min(labels[index].y, below);
  }
  return labels;
}
