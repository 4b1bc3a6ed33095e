// Checks a report's layout: widths, keyboard, saved figures, slides, print and the chart of scaling laws.
import {readFile} from "node:fs/promises";

export const checkLayouts = async (open, expect) => {
  for (const width of [400, 1024, 1600]) {
    for (const colorScheme of ["light", "dark"]) {
      const name = `${width}-${colorScheme}`;
      const page = await open({viewport: {width, height: 900}, colorScheme}, name);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(wide <= width, `${name}: the page is ${wide} pixels wide and scrolls sideways`);
      const cut = await page.locator(".chart").evaluateAll((charts) => charts.filter((chart) =>
        chart.dataset.drawn && chart.scrollWidth > chart.clientWidth + 1).length);
      expect(cut === 0, `${name}: ${cut} charts are wider than their figures`);
      const outside = await page.evaluate(() => Array.from(document.querySelectorAll(".chart[data-drawn] svg text")).filter((text) => {
        const [own, around] = [text.getBoundingClientRect(), text.closest("svg").getBoundingClientRect()];
        return own.width > 0 && (own.left < around.left - 2 || own.right > around.right + 2);
      }).map((text) => text.textContent));
      expect(outside.length === 0, `${name}: texts leave their chart: ${outside.slice(0, 5).join(" | ")}`);
      await page.close();
    }
  }
};

// Everything that can be clicked can be reached with the Tab key and shows that it has the focus.
export const checkKeyboard = async (page, expect, mode) => {
  const wanted = await page.evaluate(() => Array.from(document.querySelectorAll("button, a[href], select, input, summary, [tabindex='0']"))
    .filter((each) => each.checkVisibility()).map((each, i) => { each.dataset.check = i; return i; }).length);
  expect(wanted > (mode === "charts" ? 30 : 15), `only ${wanted} controls`);
  const reached = new Set();
  for (let i = 0; i < wanted + 5; ++i) {
    await page.keyboard.press("Tab");
    const now = await page.evaluate(() => {
      const focused = document.activeElement;
      const style = getComputedStyle(focused);
      return {id: focused.dataset.check, ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1};
    });
    if (now.id === undefined) continue;
    reached.add(now.id);
    expect(now.ring, `control ${now.id} shows no focus ring`);
  }
  expect(reached.size === wanted, `the keyboard reaches ${reached.size} of ${wanted} controls`);
};

// Chromium ignores a download that starts more than five seconds after the click, which happens on a busy machine.
const saved = async (page, figure, type, tries = 3) => {
  const button = figure.locator(type === "csv" ? "a[download]" : `button[data-save=${type}]`);
  const [download] = await Promise.all([page.waitForEvent("download", {timeout: 20000}).catch(() => null), button.click()]);
  if (download === null && tries > 1) return saved(page, figure, type, tries - 1);
  if (download === null) return {name: "nothing", bytes: Buffer.alloc(24)};
  return {name: download.suggestedFilename(), bytes: await readFile(await download.path())};
};

export const checkSaving = async (page, expect) => {
  for (const figure of await page.locator("figure[data-chart]").all()) {
    const id = await figure.getAttribute("data-chart");
    const svg = await saved(page, figure, "svg");
    const text = svg.bytes.toString();
    expect(svg.name === `${id}.svg`, `${id}: saved as ${svg.name}`);
    expect(!text.includes("var(--") && !text.includes("<style") && !text.includes(":where"), `${id}: the saved SVG needs the page's style sheet`);
    const problem = await page.evaluate((xml) => new DOMParser().parseFromString(xml, "image/svg+xml").querySelector("parsererror")?.textContent ?? "", text);
    expect(problem === "", `${id}: the saved SVG is not valid: ${problem}`);
    const png = await saved(page, figure, "png");
    expect(png.name === `${id}.png` && png.bytes.subarray(1, 4).toString() === "PNG", `${id}: the saved PNG is none`);
    expect(png.bytes.readUInt32BE(16) > 800 && png.bytes.length > 5000, `${id}: the saved PNG is empty or small`);
    const csv = await saved(page, figure, "csv");
    const lines = csv.bytes.toString().trim().split("\r\n");
    expect(csv.name === `${id}.csv` && lines.length > 1 && lines[0].includes(","), `${id}: the saved CSV has no data`);
  }
};

export const checkSlides = async (page, expect) => {
  await page.locator("#slides").click();
  const heights = await page.locator("main > header, main > section:visible").evaluateAll((all) => all.map((each) => each.getBoundingClientRect().height));
  expect(heights.every((height) => height >= 895), `a slide is only ${Math.min(...heights)} pixels high`);
  await page.waitForTimeout(200);  // charts are drawn again
  for (const id of ["curves", "cost"]) {
    const height = await page.locator(`#${id}`).evaluate((each) => each.getBoundingClientRect().height);
    expect(height <= 902, `the slide ${id} is ${height} pixels high on a screen of 900`);
  }
  await page.locator("#slides").blur();
  const tops = [];
  for (const key of ["ArrowRight", "PageDown", "ArrowLeft"]) {
    await page.keyboard.press(key);
    tops.push(await page.evaluate(() => window.scrollY));
  }
  expect(tops[0] >= 800 && tops[1] > tops[0] && tops[2] === tops[0], `the arrow keys lead to ${tops.join(", ")}`);
  await page.keyboard.press("Escape");
  expect(await page.locator("#slides").getAttribute("aria-pressed") === "false", "Escape does not leave the slides");
};

// Printed in light colours, each figure on a page of its own.
export const checkPrint = async (page, expect, folder) => {
  await page.emulateMedia({media: "print", colorScheme: "dark"});
  const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  expect(paper === "rgb(255, 255, 255)", `printed on ${paper}`);
  expect(await page.locator(".save:visible, .tools:visible, .controls label:visible").count() === 0, "controls are printed");
  const figures = await page.locator("section.figure").evaluateAll((all) => all.map((each) => getComputedStyle(each).breakBefore));
  expect(figures.length >= 5 && figures.every((value) => value === "page"), `figures do not begin a page: ${figures.join(", ")}`);
  const pdf = await page.pdf({preferCSSPageSize: true, printBackground: true, ...(folder ? {path: `${folder}/print.pdf`} : {})});
  const pages = (pdf.toString("latin1").match(/\/Type\s*\/Page[^s]/g) ?? []).length;
  expect(pages >= figures.length + 2, `${figures.length} figures are printed on ${pages} pages`);
};

export const checkScaling = async (page, expect) => {
  const figure = page.locator("figure[data-chart=scaling]");
  expect(await figure.locator(".chart [aria-label=line] path").count() === 2, "scaling: expected two laws");
  expect(await figure.locator(".chart [aria-label=area] path").count() === 2, "scaling: expected two bands");
  const before = await figure.locator(".chart").innerHTML();
  await figure.getByLabel("Vertical").selectOption("log");
  expect(await figure.locator(".chart").innerHTML() !== before, "scaling: the scale changes nothing");
  await figure.getByLabel("subtract E").check();
  expect((await figure.locator(".chart").textContent()).includes("− E"), "scaling: E is not subtracted");
  await page.locator("#scaling summary").click();
  expect((await page.locator("#scaling table").innerText()).includes("L = "), "scaling: no table of laws");
};
