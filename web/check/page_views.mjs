// The views beside the conversation: compare, inspect and server.
import {soon} from "./soon.mjs";

const checkCompare = async ({page, expect, shot}) => {
  await page.keyboard.press("Alt+Digit2");
  const models = await page.getByLabel("Model A").locator("option").allInnerTexts();
  expect(models.length === 2, `compare: ${models.length} models`);
  for (const name of ["Completion", "Chat"]) {
    const button = page.locator(".compare-view").getByRole("button", {name, exact: true});
    await button.click();
    expect(await soon(async () => await button.getAttribute("aria-pressed") === "true"), `compare: ${name} is not chosen, or another view opened`);
  }
  await page.locator(".compare-view .examples button").first().click();
  expect(await soon(async () => await page.inputValue("#compare-prompt") !== ""), "compare: an example does not fill the prompt");
  expect(await soon(async () => await page.locator(".compare-view .examples").count() === 0), "compare: the examples stay");
  const run = async () => {
    await page.fill("#compare-prompt", "Shall I compare thee");
    await page.getByRole("button", {name: "Run both"}).click();
    await page.waitForFunction(() => document.querySelector(".compare-view .verdict") && [...document.querySelectorAll("button")].some((one) => one.textContent === "Run both"), null, {timeout: 20000});
  };
  await run();
  await page.waitForSelector(".compare-view .bars", {timeout: 10000});
  expect(await soon(async () => (await page.locator(".compare-view .verdict").innerText()).includes("begin to differ at token")), "compare: two models do not differ");
  expect(await soon(async () => await page.locator(".tok.differs").count() === 2), "compare: the first difference is not marked on both sides");
  const tokens = parseInt(await page.locator(".side > header small").first().innerText());
  const bars = await page.locator(".bars i").count();
  expect(bars === tokens, `compare: ${bars} bars of KL for ${tokens} tokens`);
  await shot(page, "compare");
  await page.getByLabel("Model B").selectOption(models[0]);
  await page.getByLabel("Model A").selectOption(models[0]);
  await run();
  await page.waitForFunction(() => document.querySelector(".compare-view").textContent.includes("KL 0"));
  expect(await soon(async () => (await page.locator(".compare-view .verdict").innerText()).includes("identical")), "compare: one model with one seed differs from itself");
};

const checkInspect = async ({page, expect, shot}) => {
  await page.keyboard.press("Alt+Digit1");
  const answer = page.locator(".message.assistant").last();
  await answer.hover();
  await answer.getByRole("button", {name: "Inspect tokens and attention"}).click();
  await page.waitForSelector(".heads canvas", {timeout: 20000});
  const tokens = await page.locator(".strip .tok").count();
  expect(tokens > 10, `inspect: ${tokens} tokens`);
  expect(await soon(async () => await page.locator(".heads button").count() >= 2), "inspect: fewer than two heads");
  const labelled = await page.locator(".axis.rows span").count();
  expect(labelled === (tokens <= 32 ? tokens : 0), `inspect: ${labelled} names beside a map of ${tokens} tokens`);
  const pixels = () => page.locator(".large canvas").evaluate((canvas) => canvas.toDataURL());
  const first = await pixels();
  await page.locator(".heads button").nth(1).click();
  expect(await soon(async () => await pixels() !== first), "inspect: another head has the same map");
  await page.locator(".layer-row input").fill("1");
  await page.waitForFunction(() => document.querySelector(".attention h3").textContent.includes("layer 1"));
  await page.locator(".strip .tok.selected").focus();
  const before = await page.locator(".token-card h3").innerText();
  await page.keyboard.press("ArrowLeft");
  expect(await soon(async () => await page.locator(".token-card h3").innerText() !== before), "inspect: the arrow keys select no token");
  expect(await soon(async () => await page.locator(".candidates li").count() > 5), "inspect: no candidates");
  for (const name of ["Entropy", "Attention"]) {
    await page.locator(".inspect-view").getByRole("button", {name, exact: true}).click();
    expect(await soon(async () => await page.locator(`.strip .tok.${name === "Entropy" ? "e5, .strip .tok.e4, .strip .tok.e3" : "a1, .strip .tok.a2, .strip .tok.a3"}`).count() > 0), `inspect: no colours of ${name}`);
  }
  expect(await soon(async () => await page.locator(".bars").count() === 2), "inspect: no chart of surprise and entropy");
  await page.waitForSelector(".diagram svg rect");
  expect(await soon(async () => await page.locator(".diagram style, .diagram script, .diagram [style]").count() === 0), "the diagram has a style or script");
  await shot(page, "inspect");
};

const checkTabs = async ({page, expect}) => {
  await page.locator("#tab-server").focus();
  const chosen = () => page.evaluate(() => `${document.activeElement.id} ${document.querySelector(".tabs [aria-selected=true]").id}`);
  for (const [key, name] of [["ArrowRight", "chat"], ["ArrowLeft", "server"], ["Home", "chat"], ["ArrowRight", "compare"]]) {
    await page.keyboard.press(key);
    expect(await soon(async () => await chosen() === `tab-${name} tab-${name}`), `tabs: ${key} leads to ${await chosen()}`);
  }
  await page.keyboard.press("Alt+Digit1");
};

const checkServer = async ({page, expect, shot}) => {
  await page.keyboard.press("Alt+Digit4");
  await page.waitForSelector(".engine .row-grid i");
  expect(await soon(async () => await page.locator(".engine").count() === 2), "server: not one card per model");
  expect(await soon(async () => await page.locator(".engine .pages").count() === 2), "server: no pages");
  expect(await soon(async () => /of \d+ rows/.test(await page.locator(".row-grid").first().getAttribute("aria-label"))), "server: rows have no text");
  await shot(page, "server");
  await page.keyboard.press("Alt+Digit1");
};

export const checkViews = async (tools) => {
  await checkCompare(tools);
  await checkInspect(tools);
  await checkServer(tools);
  await tools.page.keyboard.press("Alt+Digit4");
  await checkTabs(tools);
};
