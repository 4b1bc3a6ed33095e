// node check.mjs CHROMIUM SAMPLE.html LADDER.html SCALING.html ZH.html charts|pictures [FOLDER]: opens the reports of
// tests/golden/lab/sample_results.json (in English and Chinese), docs/studies/ladder and tests/golden/lab/scaling_results.json
// in a browser. Checks what a reader sees: charts, columns, sorting, controls, saved figures, slides, print, block
// diagrams, widths of 400, 1024 and 1600 pixels in light and dark, the keyboard, and the page without scripts.
// Writes screenshots to FOLDER. Prints a line per failure and then exits with 1.
import {chromium} from "playwright-core";
import {checkLadder} from "./ladder.mjs";
import {checkLayouts, checkKeyboard, checkPrint, checkSaving, checkScaling, checkSlides} from "./layouts.mjs";

const [executablePath, file, ladder, scaling, chinese, mode, folder] = process.argv.slice(2);
const failures = [];
const expect = (holds, message) => { if (!holds) failures.push(message); };

const browser = await chromium.launch({executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic",
  "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]});

const open = async (options, name, path = file) => {
  const page = await browser.newPage({viewport: {width: 1240, height: 900}, ...options});
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) failures.push(`${name}: console: ${message.text()}`); });
  page.on("pageerror", (error) => failures.push(`${name}: error: ${error.message}`));
  page.on("dialog", (dialog) => { failures.push(`${name}: a dialog opened: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => {
    const own = request.url() === `file://${path}` || request.url().startsWith("data:") || request.url().startsWith("blob:");
    expect(own, `${name}: a request to ${request.url()}`);
  });
  await page.goto(`file://${path}`);
  if (folder) await page.screenshot({path: `${folder}/${name}.png`, fullPage: true});
  return page;
};

// WCAG contrast of an element's text against its nearest background.
const contrast = (page, selector) => page.evaluate((wanted) => {
  const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const element = document.querySelector(wanted);
  let behind = element;
  while (numbers(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  const [a, b] = [luminance(numbers(getComputedStyle(element).color)), luminance(numbers(getComputedStyle(behind).backgroundColor))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}, selector);

const checkPage = async (page, name) => {
  for (const chart of ["effects", "curves", "cost", "extrapolation", "passkey"]) {
    const figure = page.locator(`figure[data-chart="${chart}"]`);
    expect(await figure.locator(".chart svg").count() > 0, `${name}: the chart ${chart} is missing`);
    expect((await figure.locator(".chart").getAttribute("aria-label") ?? "").length > 20, `${name}: ${chart} has no text alternative`);
    expect((await figure.locator("figcaption").innerText()).length > 20, `${name}: ${chart} has no caption`);
  }
  expect(await page.locator("svg:not([viewBox])").count() === 0, `${name}: an SVG has no viewBox`);
  for (const selector of ["body", ".question", "thead th", ".spread", ".answer", ".answer-rest", ".mark.better", ".verdict.does-not", "#claims td", ".save a", "figcaption", "summary"]) {
    const value = await contrast(page, selector);
    expect(value >= 4.5, `${name}: the contrast of ${selector} is ${value.toFixed(2)}, less than 4.5`);
  }
  expect(await page.locator("td:not([data-value]) .mean").count() === 0, `${name}: a number cannot be sorted`);
  expect(await page.locator("th:not([scope])").count() === 0, `${name}: a table head has no scope`);
  expect(await page.locator("img:not([alt])").count() === 0, `${name}: an image has no text alternative`);
  expect(await page.locator("img").evaluateAll((images) => images.every((image) => image.complete && image.naturalWidth > 0)),
    `${name}: a block diagram is not drawn`);
  // Markup in the sample's names must be escaped, not become elements.
  expect(await page.locator("main b, img[src='x']").count() === 0, `${name}: a text of the results became an element`);
};

const checkSorting = async (page) => {
  await page.locator("#columns").click();
  const columns = await page.locator("#variants thead th:visible").count();
  expect(columns >= 15, `the table has ${columns} columns, fewer than 15`);
  for (let column = 0; column < columns; ++column) {
    const head = page.locator("#variants thead th").nth(column);
    for (const direction of ["ascending", "descending"]) {
      await head.locator("button").click();
      expect(await head.getAttribute("aria-sort") === direction, `column ${column} is not marked ${direction}`);
      const values = await page.evaluate((n) => Array.from(document.querySelectorAll("#variants tbody tr"), (row) => row.cells[n].dataset.value), column);
      const given = values.filter((value) => value !== undefined).map((value) => (column === 0 ? value : Number(value)));
      const least = values.indexOf(undefined);
      expect(least === -1 || least === given.length, `column ${column}: rows without a number are not last`);
      const sign = direction === "ascending" ? 1 : -1;
      const ordered = given.every((value, i) => i === 0 || sign * (column === 0 ? given[i - 1].localeCompare(value) : given[i - 1] - value) <= 0);
      expect(ordered, `column ${column} is not ${direction}: ${given.join(", ")}`);
    }
  }
};

const checkControls = async (page) => {
  const count = (chart, what) => page.locator(`figure[data-chart="${chart}"] .chart ${what}`).count();
  const pick = (chart, name, value) => page.locator(`figure[data-chart="${chart}"]`).getByLabel(name, {exact: true}).selectOption(value);
  expect(await page.locator(".chart[data-drawn=script]").count() === 5, "a chart was not drawn by the script");
  expect(await count("curves", "[aria-label=line]") === 5, "curves: expected 5 lines");
  expect(await count("curves", "[aria-label=area]") === 5, "curves: expected 5 bands");
  await page.locator("figure[data-chart=curves] .legend button").nth(1).click();
  expect(await count("curves", "[aria-label=line]") === 4, "curves: the legend hides no line");
  const before = await page.locator("figure[data-chart=curves] .chart").innerHTML();
  const curves = page.locator("figure[data-chart=curves]");
  for (const [name, value, back] of [["Horizontal", "log", "linear"], ["Vertical", "log", "linear"], ["Against", "tokens", "step"],
    ["Against", "seconds", "step"], ["Shown", "end", "all"]]) {
    await pick("curves", name, value);
    expect(await curves.locator(".chart").innerHTML() !== before, `curves: ${name}, ${value} changes nothing`);
    await pick("curves", name, back);
  }
  await curves.getByLabel("Bands").uncheck();
  expect(await count("curves", "[aria-label=area]") === 0, "curves: the bands cannot be switched off");
  await curves.getByLabel("Bands").check();
  expect(await count("curves", "[aria-label=area]") === 4, "curves: the bands cannot be switched on again");
  expect(await count("effects", "[aria-label=dot]") === 4, `effects: expected 4 points, found ${await count("effects", "[aria-label=dot]")}`);
  expect(await count("effects", "[aria-label=rect] rect") === 4, "effects: the margin of equivalence is not drawn");
  const absolute = await page.locator("figure[data-chart=effects] .chart").textContent();
  await pick("effects", "Unit", "relative");
  expect(await page.locator("figure[data-chart=effects] .chart").textContent() !== absolute, "effects: the unit changes nothing");
  await pick("curves", "Loss", "training");
  expect((await page.locator("figure[data-chart=curves] .chart").textContent()).includes("training loss"), "curves: no training loss");
  expect(await count("cost", "[aria-label=dot] circle") === 5, "cost: expected 5 points");
  for (const [value, title] of [["flops_per_token", "FLOPs per token"], ["tokens_per_second", "Training tokens/s"],
    ["kv_bytes_per_token", "Cache per token"], ["peak_memory_bytes", "Peak memory"]]) {
    await pick("cost", "Cost", value);
    expect((await page.locator("figure[data-chart=cost] .chart").textContent()).includes(title), `cost: no chart of ${title}`);
  }
  expect(await count("extrapolation", ".panels > div") === 2, "extrapolation: expected two panels");
  expect(await count("passkey", "[aria-label=cell] rect") === 75, "passkey: expected 75 cells");
  await pick("curves", "Loss", "validation");
  await page.locator("figure[data-chart=curves] .chart circle").nth(3).hover({force: true});
  expect(await count("curves", "[aria-label=tip] path") > 0, "curves: the pointer shows no numbers");
};

const background = (page) => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);

const light = await open({colorScheme: "light"}, "light");
const dark = await open({colorScheme: "dark"}, "dark");
const [white, black] = [await background(light), await background(dark)];
expect(white !== black, "light and dark have the same background");
await checkPage(light, "light");
await checkPage(dark, "dark");
await light.locator("#theme").click();
expect(await background(light) === black, "the switch does not make the page dark");
await checkPage(light, "switched to dark");
await light.locator("#theme").click();
expect(await background(light) === white, "the switch does not make the page light again");
await checkSorting(light);
if (mode === "charts") await checkControls(light);

for (const [path, name] of [[file, "sample"], [ladder, "ladder"], [scaling, "scaling"], [chinese, "chinese"]]) {
  await checkLayouts((options, title) => open(options, `${name}-${title}`, path), expect);
}
await checkKeyboard(await open({}, "keyboard"), expect, mode);
await checkSaving(await open({acceptDownloads: true}, "saving"), expect);
await checkSlides(await open({}, "slides"), expect);
await checkPrint(await open({colorScheme: "dark"}, "print"), expect, folder);
if (mode === "charts") await checkScaling(await open({}, "scaling", scaling), expect);
const zh = await open({}, "chinese", chinese);
expect(await zh.locator("html").getAttribute("lang") === "zh-CN", "the Chinese report does not say its language");
for (const [id, title] of [["effects", "效应"], ["curves", "学习曲线"], ["claims", "说法与判断"], ["repeat", "重复实验"]]) {
  expect((await zh.locator(`#${id} h2`).innerText()) === title, `the Chinese report has no ${title}`);
}
await checkPage(await open({javaScriptEnabled: false}, "no-script"), "no script");
await checkLadder((options, name) => open(options, name, ladder), expect, mode);
await browser.close();

for (const failure of failures) console.log(`report: ${failure}`);
console.log(failures.length === 0 ? `report: ${mode}, columns, sorting, saving, slides, print, diagrams, 400 to 1600 pixels, light, dark, keyboard and without scripts are right` : `report: ${failures.length} failures`);
process.exit(failures.length === 0 ? 0 : 1);
