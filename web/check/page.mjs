// node page.mjs CHROMIUM ADDRESS WEB [FOLDER]: uses the page of a `lamina serve` at ADDRESS as a reader would. WEB is the
// folder web/chat. Writes screenshots to FOLDER. Prints a line per failure and then exits with 1.
import {chromium} from "playwright-core";
import {checkStates} from "./page_states.mjs";
import {checkViews} from "./page_views.mjs";
import {startProxy} from "./proxy.mjs";
import {soon} from "./soon.mjs";

const [executablePath, address, web, folder] = process.argv.slice(2);
const {decodeShare, encodeShare} = await import(`${web}/lib/share.js`);
const failures = [];
const expect = (holds, message) => { if (!holds) failures.push(message); };

const browser = await chromium.launch({executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic",
  "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]});
const proxy = await startProxy(new URL(address));
const context = await browser.newContext({viewport: {width: 1400, height: 900}, permissions: ["clipboard-read", "clipboard-write"]});

/** Opens the page; every console message, error or request to elsewhere is a failure unless it matches `allowed`. */
const open = async (name, {hash = "", allowed = null, from = context, path = "/"} = {}) => {
  const page = await from.newPage();
  const unless = (text) => { if (!allowed?.test(text)) failures.push(`${name}: ${text}`); };
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) unless(`console: ${message.text()}`); });
  page.on("pageerror", (error) => unless(`error: ${error.message}`));
  page.on("dialog", (dialog) => { failures.push(`${name}: a dialog opened: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => expect(/^(data|blob):/.test(request.url()) || request.url().startsWith(proxy.address), `${name}: a request to ${request.url()}`));
  page.setDefaultTimeout(10000);
  await page.goto(`${proxy.address}${path}${hash}`);
  return page;
};
const idle = (page) => page.waitForFunction(() => !document.querySelector(".round.stop"), null, {timeout: 20000});
const ask = async (page, text) => {
  await page.fill("#prompt", text);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".message.assistant");
  await idle(page);
};
const lastAnswer = (page) => page.locator(".message.assistant").last();
const bodyOf = (page) => lastAnswer(page).locator(".body").innerText();
const branchesOf = async (message) => (await message.locator(".branches > span").innerText()).replace(/\s+/g, " ");
const shot = async (page, name) => { if (folder) await page.screenshot({path: `${folder}/${name}.png`}); };

const checkChat = async (page) => {
  expect(await soon(async () => await page.getByRole("button", {name: "Completion", exact: true}).getAttribute("aria-pressed") === "true"), "a model without a chat template does not begin with completion");
  await page.getByRole("button", {name: "Chat", exact: true}).click();
  await page.fill("#max-tokens", "24");
  await page.fill("#seed", "7");
  await page.locator("#seed").blur();
  proxy.set({delay: 15});
  await page.fill("#prompt", "Shall I go?");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => (document.querySelector(".message.assistant .markup")?.textContent.length ?? 0) > 3);
  const part = (await lastAnswer(page).locator(".body").textContent()).length;
  expect(await soon(async () => await page.locator(".numbers .rate").count() === 1), "no tokens/s while streaming");
  expect(await soon(async () => await page.locator(".round.stop").count() === 1), "no stop button while streaming");
  await idle(page);
  proxy.set({});
  const whole = (await lastAnswer(page).locator(".body").textContent()).length;
  expect(whole > part, `the answer does not stream: ${part} characters, then ${whole}`);
  const request = proxy.seen.findLast((one) => one.path === "/v1/completions").body;
  expect(request.seed === 7 && request.max_tokens === 24 && request.stream === true, `settings are not sent: ${JSON.stringify(request)}`);
  expect(await soon(async () => Number(await page.locator(".meter").getAttribute("aria-valuenow")) > 24), "the context meter does not count");
  expect(await soon(async () => (await lastAnswer(page).locator(".facts").innerText()).includes("seed 7")), "the seed is not shown");
};

const checkStop = async (page) => {
  proxy.set({delay: 40});
  await page.fill("#prompt", "Go on for long");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 2 && (document.querySelectorAll(".message.assistant .markup")[1]?.textContent.length ?? 0) > 2);
  await page.keyboard.press("Escape");
  await idle(page);
  proxy.set({});
  const before = await bodyOf(page);
  await page.waitForTimeout(200);
  expect(await soon(async () => await bodyOf(page) === before), "the answer grows after it was stopped");
  expect(await soon(async () => (await lastAnswer(page).locator(".facts").innerText()).includes("stopped")), "a stopped answer is not marked");
};

const checkBranches = async (page) => {
  const user = page.locator(".message.user").last();
  await user.hover();
  await user.getByRole("button", {name: "Edit"}).click();
  await page.getByLabel("Edit the message").fill("Something else");
  await page.keyboard.press("Enter");
  await idle(page);
  const edited = page.locator(".message.user").last();
  expect(await soon(async () => await edited.locator(".body").innerText() === "Something else"), "the edited message is not shown");
  expect(await soon(async () => await branchesOf(edited) === "2 / 2"), `an edit makes no branch: ${await branchesOf(edited)}`);
  await edited.getByRole("button", {name: "Previous branch"}).click();
  expect(await soon(async () => await page.locator(".message.user").last().locator(".body").innerText() === "Go on for long"), "the previous branch is lost");
  await page.locator(".message.user").last().getByRole("button", {name: "Next branch"}).click();
  const first = await bodyOf(page);
  await page.fill("#seed", "8");
  await page.locator("#seed").blur();
  await page.keyboard.press("Alt+KeyR");
  await page.waitForFunction(() => [...document.querySelectorAll(".message.assistant")].at(-1).querySelector(".branches"));
  await idle(page);
  expect(await soon(async () => await branchesOf(lastAnswer(page)) === "2 / 2"), "regenerating makes no branch");
  await page.keyboard.press("Alt+ArrowLeft");
  expect(await soon(async () => await branchesOf(lastAnswer(page)) === "1 / 2"), "Alt ← does not show the previous branch");
  expect(await soon(async () => await bodyOf(page) === first), "the first answer changed");
};

/** Texts of the tokens before `place`. */
const textsBefore = (page, place) => lastAnswer(page).locator(".tok").evaluateAll((all, end) => all.filter((one) => one.dataset.index < end).map((one) => one.textContent).join("|"), place);

const checkProbabilities = async (page) => {
  await page.getByRole("button", {name: "Probabilities"}).click();
  await lastAnswer(page).locator(".tok").first().waitFor();
  const count = await lastAnswer(page).locator(".tok").count();
  expect(count >= 5 && count <= 24, `${count} coloured tokens`);
  expect(await soon(async () => await page.locator(".legend .tok").count() === 6), "the legend has not six classes");
  expect(await soon(async () => await lastAnswer(page).locator(".tok.p0, .tok.p1, .tok.p2, .tok.p3, .tok.p4, .tok.p5").count() === count), "a token has no class");
  await lastAnswer(page).locator(".tok").first().focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  const entries = page.locator(".alternatives button");
  await entries.first().waitFor();
  expect(await soon(async () => await entries.count() >= 8), "fewer than eight alternatives");
  await shot(page, "alternatives");
  await page.keyboard.press("Escape");
  expect(await soon(async () => await page.locator(".alternatives").count() === 0), "Escape does not close the alternatives");
  const place = Number(await page.evaluate(() => document.activeElement.dataset.index));
  const before = await textsBefore(page, place);
  await page.keyboard.press("Enter");
  const other = page.locator(".alternatives button:not(.chosen)").first();
  await other.focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => [...document.querySelectorAll(".message.assistant")].at(-1).textContent.includes("3 / 3"));
  await idle(page);
  const request = proxy.seen.findLast((one) => one.path === "/v1/completions").body;
  const original = proxy.seen.filter((one) => one.path === "/v1/completions").at(-3).body;
  expect(request.prompt.length === original.prompt.length + place + 1, "the forced tokens are not in the prompt");
  const after = await textsBefore(page, place);
  expect(before === after, `the tokens before the branch changed: ${before} ${after}`);
};

const checkShare = async (page) => {
  const text = await bodyOf(page);
  await lastAnswer(page).getByRole("button", {name: "Copy share link"}).click();
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  expect(await soon(async () => (await clipboard()).includes("#share=")), `no share link is copied: ${await clipboard()}`);
  const hash = new URL(await clipboard()).hash;
  const reader = await browser.newContext({viewport: {width: 1100, height: 800}});
  const opened = await open("share", {hash, from: reader});
  await opened.waitForSelector(".verdict", {timeout: 20000});
  await idle(opened);
  await opened.waitForSelector(".verdict.good", {timeout: 5000}).catch(() => {});
  expect(await soon(async () => (await opened.locator(".verdict").innerText()).startsWith("Reproduced")), `share: ${await opened.locator(".verdict").innerText()}`);
  expect(await soon(async () => await bodyOf(opened) === text), "the shared answer has another text");
  const shared = await decodeShare(hash);
  const altered = await encodeShare({...shared, fingerprint: "0123456789abcdef", digest: "other"});
  const warned = await open("altered share", {hash: `#${altered}`, from: reader});
  await warned.waitForSelector(".verdict.bad");
  await idle(warned);
  expect(await soon(async () => /differs from the shared one.*fingerprint/s.test(await warned.locator(".verdict").innerText())), "another fingerprint is no warning");
  const broken = await open("broken share", {hash: "#share=zAAAA", from: reader});
  expect(await soon(async () => (await broken.locator(".banner").innerText()).includes("damaged")), "a damaged link is not reported");
  await reader.close();
};

const checkConversations = async (page) => {
  const text = await bodyOf(page);
  await page.waitForTimeout(400);
  await page.reload();
  await page.locator(".sidebar li .open").first().click();
  expect(await soon(async () => await bodyOf(page) === text), "the conversation is not the same after a reload");
  await page.locator(".sidebar li").first().hover();
  await page.getByRole("button", {name: "Rename"}).first().click();
  await page.getByLabel("Name of the conversation").fill("My talk");
  await page.keyboard.press("Enter");
  expect(await soon(async () => await page.locator(".sidebar li .open span").first().innerText() === "My talk"), "renaming has no effect");
  await page.locator(".sidebar li").first().hover();
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", {name: "Export as JSON"}).first().click()]);
  expect(file.suggestedFilename() === "My-talk.json", `the export is called ${file.suggestedFilename()}`);
  await page.keyboard.press("Alt+KeyN");
  await page.getByRole("button", {name: "Completion", exact: true}).click();
  await ask(page, "To be");
  expect(await soon(async () => await page.locator(".messages.complete").count() === 1), "no completion");
  const ids = proxy.seen.findLast((one) => one.path === "/v1/completions").body.prompt;
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 2);
  await idle(page);
  const longer = proxy.seen.findLast((one) => one.path === "/v1/completions").body.prompt;
  expect(longer.length > ids.length && ids.every((id, index) => longer[index] === id), "continuing a text does not send what was written");
  await page.locator(".sidebar li").first().hover();
  await page.locator(".sidebar li").first().getByRole("button", {name: "Delete", exact: true}).click();
  await page.getByRole("button", {name: "Delete", exact: true}).first().click();
  expect(await soon(async () => await page.locator(".sidebar li .open").count() === 1), "deleting a conversation has no effect");
};

const page = await open("chat");
await page.waitForSelector(".empty h1");
await shot(page, "empty");
await checkChat(page);
await checkStop(page);
await checkBranches(page);
await checkProbabilities(page);
await shot(page, "chat");
await checkShare(page);
await checkViews({page, expect, idle, shot});
await checkConversations(page);
await checkStates({browser, open, proxy, expect, idle, ask, shot, web});
await browser.close();
await proxy.close();

for (const failure of failures) console.log(`page: ${failure}`);
console.log(failures.length === 0 ? "page: sending, streaming, stopping, branches, alternatives, share links, views, states and keyboard are right" : `page: ${failures.length} failures`);
process.exit(failures.length === 0 ? 0 : 1);
