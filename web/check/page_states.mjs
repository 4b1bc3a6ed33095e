// States that a working server does not show: errors, hostile text, narrow screens, themes, keyboard, the plain page.
import fs from "node:fs";
import {soon} from "./soon.mjs";

const error = (status, message, headers = {}) => ({status, headers: {"Content-Type": "application/json", ...headers},
  body: JSON.stringify({type: "error", error: {message, type: "x", param: null, code: null}})});

const checkErrors = async ({browser, open, proxy, expect, ask}) => {
  const key = "correct-horse";
  proxy.set({answer: ({path, headers}) => (path !== "/" && path !== "/favicon.ico" && headers.authorization !== `Bearer ${key}` ? error(401, "no API key was given") : null)});
  const context = await browser.newContext();
  const page = await open("key", {from: context, allowed: /401/});
  await page.waitForSelector("#api-key");
  await page.fill("#api-key", "wrong-key");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog .failure");
  await page.fill("#api-key", key);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".empty h1");
  expect(await soon(async () => await page.evaluate(() => sessionStorage.getItem("lamina-api-key")) === key), "the key is not kept in the session");
  expect(await soon(async () => await page.evaluate((text) => !JSON.stringify(localStorage).includes(text), key)), "the key is in local storage");

  const busy = await open("busy", {from: context, allowed: /401|429/});
  await busy.waitForSelector(".empty h1, .banner, dialog[open]");
  proxy.set({answer: ({path}) => (path === "/v1/completions" ? error(429, "the queue is full", {"Retry-After": "7"}) : null)});
  await busy.reload();
  await busy.waitForSelector(".empty h1");
  await ask(busy, "Hello");
  await busy.waitForSelector(".failure");
  expect(await soon(async () => /queue is full[\s\S]*in 7 s/.test(await busy.locator(".failure").innerText())), "429 does not say when to retry");
  proxy.set({});
  await busy.getByRole("button", {name: "Retry"}).click();
  await busy.waitForFunction(() => !document.querySelector(".failure") && document.querySelector(".facts"));

  proxy.set({answer: ({path}) => (path === "/tokenize" ? error(404, "model: 'x' is not served") : null)});
  const wrong = await open("wrong model", {from: context, allowed: /404/});
  await wrong.waitForSelector(".empty h1");
  await ask(wrong, "Hello");
  expect(await soon(async () => (await wrong.locator(".failure").innerText()).includes("Choose another model")), "404 has no hint");
  proxy.set({});
  await context.close();

  const alone = await browser.newContext();
  const gone = await open("gone", {from: alone, allowed: /ERR_|Failed to load|net::/});
  await gone.waitForSelector(".empty h1");
  await gone.route("**/tokenize", (route) => route.abort("connectionrefused"));
  await ask(gone, "Hello");
  expect(await soon(async () => (await gone.locator(".failure").innerText()).includes("does not answer")), "a server that is gone is not reported");
  await alone.close();
};

const HOSTILE = "<script>window.hacked = 1</script><img src=x onerror=\"window.hacked = 2\"> **bold**\n```html\n<b onclick=\"hack()\">x</b>\n</script>\n```\n[a](javascript:alert(1))";

const checkHostile = async ({browser, open, proxy, expect, ask}) => {
  const bytes = [...new TextEncoder().encode(HOSTILE)];
  const entry = {token: HOSTILE, token_id: 5, bytes, logprob: -0.5, top_logprobs: [{token: "<img src=x onerror=\"window.hacked = 3\">", token_id: 6, bytes: [60], logprob: -1}]};
  const events = [{choices: [{index: 0, text: HOSTILE, logprobs: {content: [entry]}, finish_reason: null}]}, {choices: [{index: 0, text: "", finish_reason: "stop"}]}];
  const stream = `${events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("")}data: [DONE]\n\n`;
  proxy.set({answer: ({path}) => (path === "/v1/completions" ? {status: 200, headers: {"Content-Type": "text/event-stream"}, body: stream} : null)});
  const context = await browser.newContext();
  const page = await open("hostile", {from: context});
  await page.waitForSelector(".empty h1");
  await page.getByRole("button", {name: "Chat", exact: true}).click();
  await ask(page, "<img src=x onerror=\"window.hacked = 4\">");
  const text = await page.locator(".message.assistant .body").innerText();
  expect(text.includes("<script>window.hacked = 1</script>") && text.includes("onclick="), "hostile text is not shown as text");
  expect(await soon(async () => await page.locator(".markup strong").innerText() === "bold" && await page.locator(".markup pre code").count() === 1), "markup is not shown");
  await page.keyboard.press("Alt+KeyP");
  await page.locator(".message.assistant .tok").first().click();
  await page.waitForSelector(".alternatives");
  expect(await soon(async () => await page.evaluate(() => window.hacked === undefined)), "text of the model ran as a script");
  expect(await soon(async () => await page.locator("main img, main script, main a").count() === 0), "text of the model became an element");
  proxy.set({});
  await context.close();
};

const TEXTS = ["body", ".message.user .body", ".facts", ".numbers", ".tabs [aria-selected=true]", ".tabs [aria-selected=false]", ".segments [aria-pressed=false]",
  ".sidebar .open small", ".settings label", ".legend > span", ".legend .p0", ".legend .p1", ".legend .p2", ".legend .p3", ".legend .p4", ".legend .p5"];

/** WCAG contrast of each text against its nearest background. */
const contrasts = (page, selectors) => page.evaluate((wanted) => {
  const luminance = (colour) => colour.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  return wanted.map((selector) => {
    const element = document.querySelector(selector);
    if (!element) return [selector, 0];
    let behind = element;
    while (behind.parentElement && numbers(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
    const [a, b] = [element, behind].map((one, i) => luminance(numbers(i === 0 ? getComputedStyle(one).color : getComputedStyle(one).backgroundColor).slice(0, 3)));
    return [selector, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
}, selectors);

const checkThemes = async ({browser, open, expect, ask, shot}) => {
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({colorScheme, viewport: {width: 1300, height: 850}});
    const page = await open(colorScheme, {from: context});
    await page.waitForSelector(".empty h1");
    await ask(page, "Hello");
    await page.keyboard.press("Alt+KeyP");
    await page.waitForSelector(".legend .p5");
    for (const [selector, value] of await contrasts(page, TEXTS)) expect(value >= 4.5, `${colorScheme}: the contrast of ${selector} is ${value.toFixed(2)}, less than 4.5`);
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const before = await background();
    await page.getByRole("button", {name: /(Light|Dark) theme/}).click();
    expect(await soon(async () => await background() !== before), `${colorScheme}: the theme does not change`);
    for (const [selector, value] of await contrasts(page, TEXTS)) expect(value >= 4.5, `${colorScheme} switched: the contrast of ${selector} is ${value.toFixed(2)}, less than 4.5`);
    const unnamed = await page.evaluate(() => [...document.querySelectorAll("button, input, select, textarea")].filter((one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.length)).map((one) => one.outerHTML.slice(0, 100)));
    expect(unnamed.length === 0, `${colorScheme}: without a name: ${unnamed.join(" ")}`);
    await shot(page, `theme-${colorScheme}`);
    await context.close();
  }
};

const checkNarrow = async ({browser, open, expect, ask, shot}) => {
  const context = await browser.newContext({viewport: {width: 400, height: 780}, hasTouch: true, reducedMotion: "reduce"});
  const page = await open("narrow", {from: context});
  const fits = async (what) => {
    const wide = await page.evaluate(() => Math.max(document.documentElement.scrollWidth, document.querySelector("main").scrollWidth));
    expect(wide <= 400, `narrow: ${what} is ${wide} pixels wide`);
    await shot(page, `narrow-${what}`);
  };
  await page.waitForSelector(".empty h1");
  await fits("empty");
  await ask(page, `Hello ${"long".repeat(60)}`);
  await page.getByRole("button", {name: "Probabilities"}).click();
  await page.locator(".message.assistant .tok").nth(3).click();
  await page.waitForSelector(".alternatives");
  const box = await page.locator(".alternatives").boundingBox();
  expect(box.x >= 0 && box.x + box.width <= 400, `narrow: the alternatives reach from ${box.x} to ${box.x + box.width}`);
  await fits("chat");
  await page.keyboard.press("Escape");
  for (const name of ["Compare", "Inspect", "Server"]) {
    await page.getByRole("tab", {name}).click();
    await page.waitForSelector(`.${name.toLowerCase()}-view`);
    await page.waitForTimeout(150);
    await fits(name.toLowerCase());
  }
  await page.getByRole("tab", {name: "Chat"}).click();
  for (const [name, selector] of [["Settings", ".settings"], ["Conversations", ".sidebar"]]) {
    await page.getByRole("button", {name, exact: true}).click();
    expect(await soon(async () => await page.locator(selector).isVisible()), `narrow: ${name} does not open`);
    await fits(name.toLowerCase());
    await page.keyboard.press("Escape");
    expect(await soon(async () => !await page.locator(selector).isVisible()), `narrow: Escape does not close ${name}`);
  }
  const moving = await page.evaluate(() => document.getAnimations().length);
  expect(moving === 0, `${moving} animations in spite of reduced motion`);
  await context.close();
};

const checkKeyboard = async ({browser, open, expect}) => {
  const context = await browser.newContext();
  const page = await open("keyboard", {from: context});
  await page.waitForSelector(".empty h1");
  await page.locator("#prompt").blur();
  await page.keyboard.press("?");
  expect(await soon(async () => await page.locator("dialog[open] .shortcuts").isVisible()), "? shows no help");
  await page.keyboard.press("Escape");
  expect(await soon(async () => await page.locator("dialog[open]").count() === 0), "Escape does not close the help");
  for (const [digit, view] of [[2, ".compare-view"], [3, ".inspect-view"], [4, ".server-view"], [1, ".chat-view"]]) {
    await page.keyboard.press(`Alt+Digit${digit}`);
    expect(await soon(async () => await page.locator(view).count() === 1), `Alt ${digit} does not show ${view}`);
  }
  await page.keyboard.press("/");
  await page.waitForFunction(() => document.activeElement.id === "prompt", null, {timeout: 2000}).catch(() => expect(false, "/ does not focus the prompt"));
  await page.keyboard.press("Alt+KeyS");
  expect(await soon(async () => await page.locator(".settings").count() === 0), "Alt S does not hide the settings");
  await context.close();
};

const checkPlain = async ({browser, open, proxy, expect, web}) => {
  const html = `<!doctype html><html><head><style>${fs.readFileSync(`${web}/plain.css`)}</style></head><body><div id="app"></div><script>${fs.readFileSync(`${web}/plain.js`)}</script></body></html>`;
  proxy.set({answer: ({path}) => (path === "/plain" ? {status: 200, headers: {"Content-Type": "text/html"}, body: html} : null)});
  const context = await browser.newContext({viewport: {width: 400, height: 700}});
  const page = await open("plain", {from: context, path: "/plain"});
  await page.waitForSelector("option", {state: "attached"});
  await page.getByLabel("Prompt").fill("Shall I");
  await page.getByLabel("Max tokens").fill("8");
  await page.getByRole("button", {name: "Continue"}).click();
  await page.waitForFunction(() => document.querySelector("pre").textContent.length > 9 && !document.querySelector("button[type=submit]").disabled);
  expect(await soon(async () => (await page.locator("pre").innerText()).startsWith("Shall I")), "the plain page does not continue the text");
  expect(await soon(async () => await page.evaluate(() => document.documentElement.scrollWidth) <= 400), "the plain page is wide");
  proxy.set({});
  await context.close();
};

export const checkStates = async (tools) => {
  await checkErrors(tools);
  await checkHostile(tools);
  await checkThemes(tools);
  await checkNarrow(tools);
  await checkKeyboard(tools);
  await checkPlain(tools);
};
