// What a model, a file or a preset says is text: nothing runs, nothing is loaded.

import assert from 'node:assert/strict';
import { ATTACKS } from './attacks.mjs';
import { accessible, ask, close, facts, keyed, open, proxy } from './harness.mjs';
import { says } from './proxy.mjs';

const CLEAN = { elements: [], listeners: [], named: 0, images: [], math: 0 };

/** What of the conversation could run or load something; runs in the page. */
function inTurns() {
  const all = (selector) => [...document.querySelectorAll(`#turns ${selector}`)];
  const names = all('*').map(({ localName }) => localName);
  const attributes = all('*').flatMap(({ attributes }) => [...attributes]).map(({ name }) => name);
  return {
    elements: names.filter((name) => /^(script|style|iframe|object|embed|svg|link|meta|base|video|audio|template|noscript|input|x-y)$/.test(name)),
    listeners: attributes.filter((name) => name.startsWith('on') || name === 'style' || name === 'srcset'),
    named: all('[id], #turns [name]').length,
    // Formulas are MathML of KaTeX, which the sanitiser has seen.
    math: all('math').filter((math) => !math.closest('.formula')).length + all('.formula :is([href], [src], [class], annotation)').length,
    images: all('img').map(({ src }) => src).filter((src) => !src.startsWith('data:image/')),
    ...(window.hit || window.refused ? { hit: window.hit, refused: window.refused } : {}),
  };
}

export const tests = {
  async [`${ATTACKS.length} texts that attack are inert`]() {
    const page = await open();
    await page.evaluate(() => document.addEventListener('securitypolicyviolation', (event) => { window.refused = event.violatedDirective; }));
    for (const attack of ATTACKS) {
      const call = { index: 0, id: 'c', type: 'function', function: { name: attack, arguments: attack } };
      proxy.script = [says(attack, { reasoning: attack, calls: [call] })];
      await page.click('#new');
      await page.setInputFiles('#file', { name: attack.replace(/[/\\\n]/g, '_'), mimeType: 'text/plain', buffer: Buffer.from(attack) });
      await page.waitForSelector('#files li');
      await ask(page, attack);
      await page.click('.reasoning summary');
      for (const link of await page.locator('.prose a').all()) assert.match(await link.getAttribute('href') ?? 'http:', /^(https?|mailto):/);
      assert.deepEqual(await page.evaluate(inTurns), CLEAN, attack);
    }
    await close(page);
  },

  async 'attacks in imported files, titles and presets are inert'() {
    const conversations = ATTACKS.map((attack, index) => ({
      id: `${attack.slice(0, 150)}${index}`, name: attack, changed: index, setup: { preset: attack.slice(0, 150), system: attack, temperature: attack.slice(0, 150) },
      turns: [
        { role: 'user', shown: 0, versions: [{ text: attack, files: [{ name: attack, text: attack }] }] },
        { role: 'model', shown: 1, versions: [
          { text: attack, reasoning: attack, calls: [{ id: attack, name: attack, arguments: attack }], finish: 'tool_calls' },
          { text: attack, reasoning: attack, calls: [], finish: 'error', failure: { kind: attack.slice(0, 40), words: attack, said: attack } }] },
        { role: 'tool', results: [{ id: attack, name: attack, content: attack }] },
      ],
    }));
    const presets = ATTACKS.map((attack) => ({ name: attack.slice(0, 100), setup: { system: attack } }));
    const page = await open();
    await page.evaluate(() => document.addEventListener('securitypolicyviolation', (event) => { window.refused = event.violatedDirective; }));
    const file = JSON.stringify({ format: 'gristmill-conversations', version: 1, conversations, presets });
    await page.setInputFiles('#import-file', { name: '<img src=x onerror=window.hit=1>.json', mimeType: 'application/json', buffer: Buffer.from(file) });
    await page.waitForFunction((count) => document.querySelectorAll('.chat').length === count, ATTACKS.length);
    const outside = (at) => page.evaluate((at) => {
      const found = [...document.querySelectorAll(`${at} *`)];
      return [found.map(({ localName }) => localName).filter((name) => /^(script|style|iframe|object|embed|svg|img|a|link|base|video|form|template)$/.test(name) && !(name === 'form' && at.startsWith('#setup'))),
        found.flatMap(({ attributes }) => [...attributes]).map(({ name }) => name).filter((name) => name.startsWith('on'))];
    }, at);
    assert.deepEqual(await outside('#side'), [[], []]);
    for (let index = 0; index < ATTACKS.length; index += 1) {
      const attack = ATTACKS.at(-1 - index);
      // The last changed is first.
      await page.evaluate((index) => document.querySelectorAll('.chat')[index].click(), index);
      assert.equal(await page.textContent('.chats .current .chat-title'), attack);
      await page.evaluate(() => document.querySelectorAll('.reasoning').forEach((details) => { details.open = true; }));
      assert.deepEqual(await page.evaluate(inTurns), CLEAN, attack);
      assert.deepEqual(await outside('#setup-line'), [[], []], attack);
      await page.evaluate(() => document.querySelector('#turns [aria-label="The version before"]').click());
      assert.deepEqual(await page.evaluate(inTurns), CLEAN, attack);
    }
    await page.click('.setup-line button');
    assert.equal(await page.locator('#setup [name=preset] option').count(), 1 + new Set(presets.map(({ name }) => name.trim())).size);
    assert.deepEqual(await outside('#setup'), [[], []]);
    await page.keyboard.press('Escape');
    await page.fill('#search', 'window.hit');
    assert.deepEqual(await outside('#side'), [[], []]);
    await page.click('#shortcuts-open');
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => window.hit ?? window.refused), undefined);
    await close(page);
  },

  async 'the sanitiser alone keeps nothing that runs or loads'() {
    const page = await open();
    const kept = await page.evaluate(async (attacks) => {
      const { clean } = await import(new URL('page/markdown.js', document.baseURI));
      return attacks.flatMap((attack) => [...clean(attack).querySelectorAll('*')]).map((element) =>
        [element.localName, ...[...element.attributes].map(({ name, value }) => `${name}=${value}`)].join(' '));
    }, ATTACKS);
    assert.ok(kept.length > 0, 'nothing is kept');
    // What an image of data has within it does not run.
    for (const element of kept.filter((kept) => !kept.startsWith('img src=data:image/'))) {
      assert.doesNotMatch(element, /^(script|style|iframe|object|embed|svg|math|link|meta|base|video|form|input|template) ?| on\w+=| style=| (id|name|srcset)=|javascript:/);
      assert.doesNotMatch(element, / src=(?!data:image)/);
    }
    // Chromium applies the policy to the inert document that the sanitiser reads too, and says so.
    page.faults = page.faults.filter((fault) => !/^console: .*(Content Security Policy|inline event handler)/.test(fault));
    await close(page);
  },

  async 'a key is asked for and kept for the tab'() {
    const page = await open(`${keyed}/`);
    await page.waitForSelector('#key[open]');
    await accessible(page, 'the question for a key');
    await page.fill('#key-input', 'wrong');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('#key').textContent.includes('not one of'));
    await page.fill('#key-input', 'secret');
    await page.keyboard.press('Enter');
    await page.waitForFunction((name) => document.querySelector('#model').textContent === name, facts.name);
    assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes('secret')), false);
    await ask(page, 'Once');
    // The browser logs each 401.
    page.faults = page.faults.filter((fault) => !fault.includes('401'));
    await close(page);
  },
};
