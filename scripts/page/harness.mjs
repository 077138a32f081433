// What the tests share: the browser, pages in it, and the server before the server.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import fs from 'node:fs';
import { chromium } from 'playwright-core';
import { Proxy } from './proxy.mjs';

export const [target, keyed, docs] = process.argv.slice(2);
const AXE = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
export const DESK = { width: 1440, height: 900 };
export const PHONE = { width: 360, height: 740 };
/** A phone's screen, which is touched. */
export const TOUCHED = { viewport: PHONE, hasTouch: true, isMobile: true };

export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
export const proxy = await new Proxy(target).listen();
export const facts = await (await fetch(`${target}/model`)).json();

/** A page of a context of its own, in which the `settings` of the page are kept already. Whatever it logs, asks of other hosts than those of `asks`, or is refused by its policy is a failure. */
export async function open(url = proxy.url, { settings, asks = [], ...options } = {}) {
  const context = await browser.newContext({ viewport: DESK, ...options });
  if (settings) await context.addInitScript((settings) => { localStorage['gristmill-settings'] ??= JSON.stringify(settings); }, settings);
  const page = await context.newPage();
  page.faults = [];
  page.on('pageerror', (error) => page.faults.push(`error: ${error.message}`));
  page.on('console', (message) => { if (message.type() === 'error') page.faults.push(`console: ${message.text()}`); });
  page.on('dialog', (dialog) => { page.faults.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => {
    if (![url, 'data:', ...asks].some((start) => request.url().startsWith(start))) page.faults.push(`request: ${request.url()}`);
  });
  // A browser's first page took more than its 30 s while both cores compiled.
  await page.goto(url, { timeout: 120_000 });
  await ready(page);
  return page;
}

/** The page takes messages, or asks for the key: it has loaded before it knows the model. */
export const ready = (page) => page.waitForFunction(() =>
  document.activeElement?.id === 'message' || document.querySelector('dialog[open]') !== null);

export async function close(page) {
  assert.deepEqual(page.faults, []);
  await page.context().close();
}

export const complete = (page, count = 1) => page.waitForFunction((wanted) =>
  document.querySelectorAll('.turn.model[aria-busy="false"] .facts').length >= wanted, count);

/** The panel draws before the next frame. */
export const drawn = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

export async function ask(page, text, count = 1) {
  await page.fill('#message', text);
  await page.keyboard.press('Enter');
  await complete(page, count);
  await drawn(page);
}

/** No serious finding of axe. */
export async function accessible(page, what) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const bad = violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
  assert.deepEqual(bad.map(({ id, nodes }) => [id, nodes.slice(0, 3).map(({ html }) => html)]), [], what);
}

const widths = (page) => page.evaluate(() => [document.documentElement.scrollWidth, document.body.scrollWidth]);
export const noSideways = async (page, what) => (await widths(page)).forEach((width) => assert.ok(width <= PHONE.width, `${what}: ${width} px`));
