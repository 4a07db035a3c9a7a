// Opens the benchmark report in a real Chromium: what is drawn, what answers, what it looks like
// on other screens and on paper. KELVIN_REPORTS is the folder that `cargo run -p suite --example
// sample_report` filled (see `make report-test`).

import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const REPORTS = path.resolve(process.env.KELVIN_REPORTS ?? assert.fail("KELVIN_REPORTS is not set"));
const RUNS = ["complete", "troubled", "smoke"];
const WIDTHS = [1280, 768, 390];
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];

const fileOf = (run) => pathToFileURL(path.join(REPORTS, run, "report.html")).href;

let browser;

// A browser with a profile of its own, which goes with it.
before(async () => {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  browser = await chromium.launch({ executablePath, args: FLAGS });
});

after(() => browser?.close());

// A report, and all that its page complained about or asked for.
async function open(run, { width = 1280, colorScheme = "light" } = {}) {
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
  const complaints = [];
  const requests = [];
  page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => requests.push(request.url()));
  const url = fileOf(run);
  await page.goto(url);
  await page.waitForFunction(() =>
    [...document.querySelectorAll(".chart svg")].every((svg) => svg.children.length > 0));
  const charts = JSON.parse(await page.locator("#chart-data").textContent());
  return { page, charts, complaints, requests, url };
}

const known = (series) => series.points.filter(([, y]) => y !== null);

for (const run of RUNS) {
  test(`${run}: every chart has drawn its series, quietly and offline`, async () => {
    const { page, charts, complaints, requests, url } = await open(run);
    assert.ok(charts.length >= 7, `${charts.length} charts`);
    for (const chart of charts) {
      const figure = page.locator(`#${chart.id}`);
      assert.equal(await figure.count(), 1, chart.id);
      if (chart.kind === "bars") {
        const bars = chart.series.reduce((sum, series) => sum + known(series).length, 0);
        assert.equal(await figure.locator("rect.bar").count(), bars, chart.id);
        continue;
      }
      assert.equal(await figure.locator("g.series").count(), chart.series.length, chart.id);
      for (const series of chart.series) {
        const group = figure.locator(`g.series[data-name="${series.name}"]`);
        const drawn = await group.locator("path").getAttribute("d");
        const vertices = drawn.match(/[ML]/g).length;
        const least = chart.kind === "stack" ? 2 * series.points.length : known(series).length;
        assert.equal(vertices, least, `${chart.id}, ${series.name}`);
        assert.ok(!/NaN|Infinity/.test(drawn), `${chart.id}, ${series.name}`);
        const { width, height } = await group.boundingBox();
        assert.ok(width > 20 && height >= 0, `${chart.id}, ${series.name}: ${width} x ${height}`);
        if (chart.kind === "points") {
          assert.equal(await group.locator("circle").count(), known(series).length, chart.id);
        }
      }
    }
    assert.deepEqual(complaints, []);
    assert.deepEqual(requests.filter((request) => !request.startsWith("data:")), [url]);
    await page.close();
  });
}

test("the limits of the drive and of RAM are drawn and named", async () => {
  const { page } = await open("complete");
  for (const [id, name] of [
    ["figure-13", "limit of the drive, 2.33 GiB/s"],
    ["figure-14", "limit of the drive, 1.90 GiB/s"],
    ["fill-memory", "maxmemory, 1 GiB"],
  ]) {
    assert.equal(await page.locator(`#${id} line.limit`).count(), 1, id);
    assert.equal(await page.locator(`#${id} .limit-name`).textContent(), name);
  }
  await page.close();
});

test("the crosshair tells the figures under the pointer", async () => {
  const { page, charts } = await open("complete");
  const plot = page.locator("#figure-13 .plot");
  await plot.scrollIntoViewIfNeeded();
  const { x, y, width, height } = await plot.boundingBox();
  await page.mouse.move(x + width / 2, y + height / 2);
  const rows = await plot.locator(".tip div").allTextContents();
  const chart = charts.find(({ id }) => id === "figure-13");
  assert.equal(rows.length, chart.series.length);
  rows.forEach((row, index) => {
    assert.match(row, new RegExp(`^${chart.series[index].name}.*[MG]iB/s$`));
  });
  assert.match(await plot.locator(".tip b").textContent(), /^1:\d\d min$/);
  assert.equal(await plot.locator("line.cross").count(), 1);
  assert.equal(await plot.locator("circle.point").count(), chart.series.length);
  await page.mouse.move(1, 1);
  assert.equal(await plot.locator(".tip").isVisible(), false);
  assert.equal(await plot.locator("line.cross").count(), 0);
  await page.close();
});

test("keys move through the figures", async () => {
  const { page, charts } = await open("complete");
  const plot = page.locator("#figure-11 .plot");
  const names = charts.find(({ id }) => id === "figure-11").series[0].names;
  const title = () => plot.locator(".tip b").textContent();
  await plot.focus();
  for (const [key, index] of [
    ["ArrowRight", 0], ["ArrowRight", 1], ["End", names.length - 1], ["ArrowRight", names.length - 1],
    ["ArrowLeft", names.length - 2], ["Home", 0],
  ]) {
    await page.keyboard.press(key);
    assert.ok((await title()).startsWith(`${names[index]},`), `${key}: ${await title()}`);
  }
  await page.keyboard.press("Escape");
  assert.equal(await plot.locator(".tip").isVisible(), false);
  await page.close();
});

test("a click in the legend takes a series away, and the axis follows", async () => {
  const { page } = await open("complete");
  const figure = page.locator("#figure-12");
  const p99 = figure.getByRole("button", { name: "p99" });
  const average = () => figure.locator('g.series[data-name="Average"]').boundingBox();
  const flat = (await average()).height;
  await p99.click();
  assert.equal(await p99.getAttribute("aria-pressed"), "false");
  assert.equal(await figure.locator("g.series").count(), 1);
  assert.ok((await average()).height > 1.5 * flat);
  await p99.click();
  assert.equal(await p99.getAttribute("aria-pressed"), "true");
  assert.equal(await figure.locator("g.series").count(), 2);
  // With nothing left, the chart is empty but alive.
  await p99.click();
  await figure.getByRole("button", { name: "Average" }).click();
  assert.equal(await figure.locator("g.series").count(), 0);
  await figure.locator(".plot").hover();
  assert.equal(await figure.locator(".tip").isVisible(), false);
  await page.close();
});

test("each chart has its figures as a table", async () => {
  const { page, charts } = await open("complete");
  for (const chart of charts) {
    const figure = page.locator(`#${chart.id}`);
    await figure.locator("summary").click();
    await figure.locator("table").waitFor();
    const stops = new Set(chart.series.flatMap((series) => series.points.map(([x]) => x)));
    assert.equal(await figure.locator("tbody tr").count(), stops.size, chart.id);
    assert.equal(await figure.locator("thead th").count(), 1 + chart.series.length, chart.id);
  }
  const first = page.locator("#flash-throughput tbody tr").first();
  assert.deepEqual(await first.locator("td").allTextContents(), ["GET", "52.7 %", "56.1 %"]);
  await page.close();
});

// Relative luminance and contrast as WCAG 2 defines them.
function contrast(one, other) {
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).map((part) => {
      const share = Number(part) / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [high, low] = [luminance(one), luminance(other)].sort((left, right) => right - left);
  return (high + 0.05) / (low + 0.05);
}

const style = (page, selector, property) =>
  page.locator(selector).first().evaluate(
    (node, name) => getComputedStyle(node).getPropertyValue(name), property);

for (const colorScheme of ["light", "dark"]) {
  test(`${colorScheme}: text and lines stand out from the page`, async () => {
    const { page } = await open("troubled", { colorScheme });
    const paper = await style(page, "html", "background-color");
    const dark = contrast(paper, "rgb(0, 0, 0)") < contrast(paper, "rgb(255, 255, 255)");
    assert.equal(dark, colorScheme === "dark");
    for (const [selector, property, least] of [
      ["body", "color", 7], [".lead", "color", 4.5], ["#figure-11 text", "fill", 4.5],
      ["td.warning span", "color", 4.5], [".plot .name.flash", "fill", 3.5],
      [".line", "stroke", 3], ["g.flash .line", "stroke", 3], ["g.third .line", "stroke", 3],
      [".plot .axis", "stroke", 2.5],
    ]) {
      const ratio = contrast(paper, await style(page, selector, property));
      assert.ok(ratio >= least, `${selector}: ${ratio.toFixed(2)}`);
    }
    await page.close();
  });
}

test("the theme can be chosen against the system's", async () => {
  const { page } = await open("complete", { colorScheme: "dark" });
  const paper = () => style(page, "html", "background-color");
  const system = await paper();
  const button = page.getByRole("button", { name: "Theme" });
  await button.click();
  assert.match(await button.textContent(), /light/);
  const light = await paper();
  assert.notEqual(light, system);
  await button.click();
  assert.match(await button.textContent(), /dark/);
  assert.equal(await paper(), system);
  await page.close();
});

// Labels that lie on each other or reach out of the page, as "a / b".
const collisions = (page) => page.evaluate(() => {
  const found = [];
  for (const plot of document.querySelectorAll(".plot")) {
    const labels = [...plot.querySelectorAll("svg text")].map((node) => ({
      text: node.textContent, box: node.getBoundingClientRect(),
    }));
    labels.forEach(({ text, box }, index) => {
      if (box.left < -0.5 || box.right > innerWidth + 0.5) found.push(`${text} / page`);
      for (const other of labels.slice(index + 1)) {
        const across = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
        const down = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
        if (across > 1 && down > 3) found.push(`${text} / ${other.text}`);
      }
    });
  }
  return found;
});

for (const width of WIDTHS) {
  test(`${width} pixels wide: labels are apart and the page does not scroll sideways`, async () => {
    for (const run of RUNS) {
      const { page } = await open(run, { width });
      assert.deepEqual(await collisions(page), [], run);
      const beyond = await page.evaluate(() =>
        document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(beyond, 0, run);
      await page.close();
    }
  });
}

test("on paper the charts fit, and what cannot be used is left out", async () => {
  const { page, charts, complaints } = await open("complete", { colorScheme: "dark" });
  await page.evaluate(() => addEventListener("beforeprint", () => {
    document.body.dataset.printed = [...document.querySelectorAll(".plot svg")]
      .map((svg) => svg.getAttribute("viewBox").split(" ")[2]).join(" ");
  }));
  const paper = await page.pdf({ preferCSSPageSize: true, printBackground: true });
  assert.equal(paper.subarray(0, 5).toString(), "%PDF-");
  const widths = (await page.locator("body").getAttribute("data-printed")).split(" ");
  const expected = charts.map(({ id }) => (id === "growth-kept" ? "690" : "335"));
  assert.deepEqual(widths, expected);
  await page.emulateMedia({ media: "print" });
  assert.equal(await style(page, "html", "background-color"), "rgb(255, 255, 255)");
  for (const selector of ["#theme", "nav", "details.data"]) {
    assert.equal(await page.locator(selector).first().isVisible(), false, selector);
  }
  assert.deepEqual(complaints, []);
  await page.close();
});

test("without scripts the tables are there", async () => {
  const page = await browser.newPage({ javaScriptEnabled: false });
  await page.goto(fileOf("complete"));
  assert.ok(await page.locator("#table-1 td", { hasText: "52.7" }).isVisible());
  await page.close();
});
