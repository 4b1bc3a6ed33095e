// Checks the report of docs/studies/ladder, a real study with a target, overlapping curves, switches that reset a
// value, and architecture diagrams.

// Finds words that are split at the end of a line, outside of code blocks and charts.
const brokenWords = (page) => page.evaluate(() => {
  const broken = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode;
    if (node.parentElement.closest("pre, svg, script, style, caption, [hidden]")) continue;
    for (const {0: word, index} of node.data.matchAll(/[\p{L}\p{N}]+/gu)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      if (new Set(Array.from(range.getClientRects(), (box) => Math.round(box.top))).size > 1) broken.push(word);
    }
  }
  return broken;
});

// The hint follows a ResizeObserver, which may need a frame.
const appears = (locator) => locator.waitFor({state: "visible", timeout: 3000}).then(() => true, () => false);

const visibleColumns = (page) => page.locator("#variants thead th:visible").allInnerTexts();

const checkColumns = async (page, expect) => {
  const few = await visibleColumns(page);
  const wanted = ["Variant", "Best loss", "Perplexity", "Training tokens/s", "Peak memory", "Parameters", "Final loss"];
  expect(few.map((title) => title.trim()).sort().join() === [...wanted].sort().join(), `the columns at first are ${few.join(", ")}`);
  const overflow = await page.locator("#results .scroll").evaluate((scroll) => scroll.scrollWidth - scroll.clientWidth);
  expect(overflow <= 1, `the table's first columns are ${overflow} pixels wider than a screen of 1240`);
  expect(!await page.locator("#results .scroll-hint").isVisible(), "a table that fits has a hint to scroll");
  await page.locator("#columns").click();
  expect((await visibleColumns(page)).length >= 12, "the button does not show the other columns");
  expect(await appears(page.locator("#results .scroll-hint")), "a table that is too wide has no hint to scroll");
  await page.locator("#results .scroll").evaluate((scroll) => scroll.scrollTo(1e5, 0));
  await page.locator("#results .scroll-hint").waitFor({state: "hidden", timeout: 5000})
    .catch(() => expect(false, "the hint to scroll stays at the end of the table"));
  await page.locator("#columns").click();
  expect((await visibleColumns(page)).length === few.length, "the button does not hide the other columns again");
  const labels = await page.locator("#variants tbody th").allInnerTexts();
  expect(!labels.some((label) => label.includes("null")), `a label shows a reset value: ${labels.join(" | ")}`);
};

// `line` is the CSS selector of the curves.
const checkTarget = async (page, line, name, expect) => {
  const chart = page.locator("figure[data-chart=curves] .chart");
  const label = await chart.locator("text", {hasText: /^target$/}).boundingBox();
  const lines = await chart.locator(line).evaluateAll((all) => all.map((each) => each.getBoundingClientRect().right));
  expect(lines.length >= 6, `${name}: expected six curves, found ${lines.length}`);
  expect(label !== null && lines.every((right) => right <= label.x + 1), `${name}: the target's name lies on the curves`);
};

const checkCharts = async (page, expect) => {
  await checkTarget(page, "[aria-label=line] path", "ladder", expect);
  expect(await page.locator("figure[data-chart=curves] .chart [stroke-dasharray='9 9']").count() > 0,
    "RoPE and RMS norm coincide, but no curve alternates");
  const {costs} = JSON.parse(await page.locator("#chart-data").textContent());
  const chosen = await page.locator("figure[data-chart=cost]").getByLabel("Cost", {exact: true}).inputValue();
  const values = costs.find(({key}) => key === chosen).points.map(({cost}) => cost);
  const levels = new Set(values.map((value) => Math.round(200 * Math.log(value)))).size;
  expect(levels >= 4, `the cost chart opens on ${chosen}, which has ${levels} values for ${values.length} variants`);
};

// Rendered colour of an element's corner.
const corner = async (page, locator) => {
  const picture = (await locator.screenshot()).toString("base64");
  return page.evaluate(async (bytes) => {
    const image = new Image();
    image.src = `data:image/png;base64,${bytes}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return Array.from(context.getImageData(12, 12, 1, 1).data).slice(0, 3);
  }, picture);
};
const brightness = (colour) => Math.max(...colour);

const checkDiagrams = async (light, dark, expect) => {
  for (const [page, name, fits] of [[light, "light", (b) => b > 200], [dark, "dark", (b) => b < 80]]) {
    const images = page.locator("#blocks details[open] .parts img");
    expect(await images.count() === 2, `${name}: expected a model and a block, found ${await images.count()} drawings`);
    expect(fits(brightness(await corner(page, images.first()))), `${name}: the block diagram is not ${name}`);
    for (const source of await images.evaluateAll((all) => all.map((image) => image.src))) {
      expect(Buffer.from(source.split(",")[1], "base64").toString().includes("viewBox"), `${name}: a drawing has no viewBox`);
    }
  }
  await light.locator("#theme").click();
  expect(brightness(await corner(light, light.locator("#blocks .parts img").first())) < 80,
    "switched to dark: the block diagram stays light");
  await light.locator("#theme").click();
};

const checkNarrow = async (page, expect) => {
  const broken = await brokenWords(page);
  expect(broken.length === 0, `on a screen of 400 pixels words are broken: ${broken.slice(0, 8).join(", ")}`);
  expect(await appears(page.locator("#results .scroll-hint")), "on a screen of 400 pixels the table has no hint to scroll");
  const scales = await page.locator("#blocks details[open] .parts img").evaluateAll((all) =>
    all.map((image) => image.getBoundingClientRect().width / image.naturalWidth));
  expect(scales.every((scale) => scale > 0.8), `on a screen of 400 pixels block diagrams shrink to ${scales.join(", ")}`);
};

export const checkLadder = async (open, expect, mode) => {
  const light = await open({colorScheme: "light"}, "ladder-light");
  const dark = await open({colorScheme: "dark"}, "ladder-dark");
  await checkColumns(light, expect);
  if (mode === "charts") await checkCharts(light, expect);
  await checkDiagrams(light, dark, expect);
  await checkNarrow(await open({viewport: {width: 400, height: 800}}, "ladder-400"), expect);
  const plain = await open({javaScriptEnabled: false}, "ladder-no-script");
  expect((await visibleColumns(plain)).length >= 12, "without scripts columns are hidden");
  await checkTarget(plain, "svg svg polyline[stroke-width='2']", "without scripts", expect);
};
