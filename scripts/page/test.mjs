// Tests the page of `gristmill serve` in Chromium, and writes the screenshots of the docs.
//
//     node test.mjs http://127.0.0.1:8080 http://127.0.0.1:8081 ../../docs
//
// The first server has the built-in model, the second also the key "secret". `CHROMIUM` names another browser.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import fs from 'node:fs';
import { chromium } from 'playwright-core';
import { ATTACKS } from './attacks.mjs';
import { Proxy, says } from './proxy.mjs';

const [target, keyed, docs] = process.argv.slice(2);
const AXE = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const DESK = { width: 1440, height: 900 };
const PHONE = { width: 360, height: 740 };

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const proxy = await new Proxy(target).listen();
const facts = await (await fetch(`${target}/model`)).json();

/** A page of a context of its own. Whatever it logs, asks of other hosts, or is refused by its policy is a failure. */
async function open(url = proxy.url, options = {}) {
  const context = await browser.newContext({ viewport: DESK, ...options });
  const page = await context.newPage();
  page.faults = [];
  page.on('pageerror', (error) => page.faults.push(`error: ${error.message}`));
  page.on('console', (message) => { if (message.type() === 'error') page.faults.push(`console: ${message.text()}`); });
  page.on('dialog', (dialog) => { page.faults.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:')) page.faults.push(`request: ${request.url()}`);
  });
  await page.goto(url);
  await ready(page);
  return page;
}

/** The page takes messages, or asks for the key: it has loaded before it knows the model. */
const ready = (page) => page.waitForFunction(() =>
  document.activeElement?.id === 'message' || document.querySelector('dialog[open]') !== null);

async function close(page) {
  assert.deepEqual(page.faults, []);
  await page.context().close();
}

const complete = (page, count = 1) => page.waitForFunction((wanted) =>
  document.querySelectorAll('.turn.model[aria-busy="false"] .facts').length >= wanted, count);

/** The panel draws before the next frame. */
const drawn = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

async function ask(page, text, count = 1) {
  await page.fill('#message', text);
  await page.keyboard.press('Enter');
  await complete(page, count);
  await drawn(page);
}

/** No serious finding of axe. */
async function accessible(page, what) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const bad = violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
  assert.deepEqual(bad.map(({ id, nodes }) => [id, nodes.slice(0, 3).map(({ html }) => html)]), [], what);
}

const widths = (page) => page.evaluate(() => [document.documentElement.scrollWidth, document.body.scrollWidth]);
const noSideways = async (page, what) => (await widths(page)).forEach((width) => assert.ok(width <= PHONE.width, `${what}: ${width} px`));

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

const tests = {
  async 'the model continues a text and its experts are shown'() {
    const page = await open();
    assert.equal(await page.textContent('#model'), facts.name);
    await page.click('#experts-open');
    await ask(page, 'Once upon a time');
    const tokens = await page.locator('.token').count();
    const { experts, logprobs, prompt } = proxy.asked.at(-1);
    assert.deepEqual([experts, logprobs > 0, prompt], [true, true, 'Once upon a time']);
    assert.ok(tokens > 5, `${tokens} tokens`);
    assert.match(await page.textContent('.facts'), /tokens.*tok\/s.*prompt/);

    await page.click('.token >> nth=3');
    await drawn(page);
    assert.equal(await page.locator('.routing tbody tr').count(), facts.layers);
    assert.equal(await page.locator('.routing tbody tr:first-child .chip').count(), facts.experts_per_token[0]);
    const shares = await page.locator('.alternatives .figure').allTextContents();
    assert.ok(shares.length >= 5 && shares.every((share) => /^\d+(\.\d)? %$/.test(share)), shares.join());

    await page.click('.routing tbody tr:first-child .chip');
    await drawn(page);
    const said = await page.textContent('#experts-readout');
    const [, count, all] = said.match(/: (\d+) of ([\d,]+) tokens/);
    assert.equal(await page.locator('.token.served').count(), Number(count), said);
    assert.equal(Number(all.replace(',', '')), tokens);

    await page.click('.as-table summary');
    await drawn(page);
    const rows = await page.locator('.as-table tbody tr').allTextContents();
    const sum = rows[0].match(/(\d+): (\d+)/g).reduce((total, pair) => total + Number(pair.split(': ')[1]), 0);
    assert.equal(sum, tokens * facts.experts_per_token[0]);

    await ask(page, ' The miller', 2);
    await page.selectOption('#experts-choice-1', { index: 1 });
    await drawn(page);
    assert.ok(await page.locator('.map canvas >> nth=1').isVisible());
    await accessible(page, 'two maps');
    await close(page);
  },

  async 'experts are asked for if the user wants them'() {
    const page = await open();
    await ask(page, 'Once');
    const traced = () => 'experts' in proxy.asked.at(-1) || 'logprobs' in proxy.asked.at(-1);
    assert.equal(traced(), false);
    await page.click('#experts-open');
    await page.uncheck('#experts-record');
    await ask(page, 'Once', 2);
    assert.equal(traced(), false);
    await page.check('#experts-record');
    await page.click('.experts-head button');
    await ask(page, 'Once', 3);
    assert.equal(traced(), true);
    await page.click('.turn.model:last-child .foot >> text="Experts"');
    await drawn(page);
    assert.ok(await page.locator('.token').count() > 5);
    await close(page);
  },

  async 'keys move in the map and in the tokens'() {
    const page = await open();
    await page.click('#experts-open');
    await ask(page, 'Once upon a time');
    await page.focus('.tokens');
    await page.keyboard.press('ArrowRight');
    await drawn(page);
    await page.keyboard.press('ArrowRight');
    await drawn(page);
    assert.equal(await page.getAttribute('.token >> nth=1', 'aria-selected'), 'true');
    await page.focus('.map canvas');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowDown');
    await drawn(page);
    assert.match(await page.textContent('#experts-readout'), /^Layer 1, expert 1: /);
    await page.keyboard.press('Enter');
    await drawn(page);
    const served = Number((await page.textContent('#experts-readout')).match(/: (\d+) of/)[1]);
    assert.equal(await page.locator('.token.served').count(), served);
    await close(page);
  },

  async 'markdown, code, reasoning'() {
    proxy.script = [says('# Head\n\nSome **bold** and `code`.\n\n```js\nconst a = 1;\n```\n\n- [x] done\n', { reasoning: 'First *think*.' })];
    const page = await open();
    await ask(page, 'Go');
    assert.equal(await page.textContent('.turn.model > .prose strong'), 'bold');
    assert.equal(await page.textContent('.code .hljs-keyword'), 'const');
    assert.equal(await page.textContent('.code-head span'), 'js');
    assert.equal(await page.getAttribute('.reasoning', 'open'), null);
    await page.click('.reasoning summary');
    assert.equal(await page.textContent('.reasoning em'), 'think');
    assert.match(await page.textContent('.facts'), /20 tokens.*38\.0 tok\/s.*prompt 100 at 400 tok\/s.*60 % from the cache/);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.click('.code-head button');
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'const a = 1;\n');
    await accessible(page, 'an answer');
    await close(page);
  },

  async 'a call of a tool and its result'() {
    const call = { index: 0, id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Oslo"}' } };
    proxy.script = [says('', { calls: [call] }), says('It rains.')];
    const page = await open();
    await page.click('#settings-open');
    await page.fill('[name=tools]', '[{"type":"function","function":{"name":"weather","parameters":{}}}]');
    await page.fill('[name=system]', 'Be brief.');
    await page.fill('[name=temperature]', '0.25');
    await accessible(page, 'settings');
    await page.press('[name=temperature]', 'Enter');
    await ask(page, 'How is it?');
    const first = proxy.asked.at(-1);
    assert.deepEqual([first.temperature, first.messages[0], first.tools.length], [0.25, { role: 'system', content: 'Be brief.' }, 1]);
    assert.match(await page.textContent('.call pre'), /"city": "Oslo"/);
    await page.fill('.call textarea', 'rain');
    await page.click('.call-result button');
    await complete(page, 2);
    const { messages } = proxy.asked.at(-1);
    assert.deepEqual(messages.slice(-2).map(({ role }) => role), ['assistant', 'tool']);
    assert.deepEqual([messages.at(-1).tool_call_id, messages.at(-1).content], ['call_1', 'rain']);
    await close(page);
  },

  async 'stop, again, edit, and what the browser keeps'() {
    proxy.script = [says('one two three '.repeat(60)), says('second'), says('third')];
    proxy.pause = 20;
    const page = await open();
    await page.fill('#message', 'Question');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.turn.model > .prose')?.textContent.includes('one two'));
    await page.keyboard.press('Escape');
    await complete(page);
    proxy.pause = 0;
    assert.match(await page.textContent('.facts'), /stopped/);
    await page.click('text=Again');
    await page.waitForFunction(() => document.querySelector('.turn.model > .prose')?.textContent.trim() === 'second');
    await page.click('[aria-label="The version before"]');
    assert.match(await page.textContent('.turn.model > .prose'), /^one two/);
    await page.click('text=Edit');
    await page.fill('.edit', 'Another question');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.turn.model > .prose')?.textContent.trim() === 'third');
    assert.equal(proxy.asked.at(-1).messages.at(-1).content, 'Another question');
    await page.click('#new');
    assert.equal(await page.locator('.turn').count(), 0);
    await page.reload();
    await ready(page);
    await page.click('.chat');
    assert.match(await page.textContent('#turns'), /Another question[^]*third/);
    await page.click('.turn.user [aria-label="The version before"]');
    assert.match(await page.textContent('#turns'), /Question[^]*one two/, 'an edit keeps what followed the message before');
    await page.click('[aria-label="The next version"] >> nth=0');
    assert.match(await page.textContent('#turns'), /Another question[^]*third/);
    const trash = page.locator('.chats .quiet');
    await trash.click();
    await trash.click();
    await page.waitForFunction(() => document.querySelectorAll('.chat').length === 0);
    await close(page);
  },

  async 'numbers of lists, alignment of tables, formulas'() {
    const formulas = '\\[\na^2\n+ b^2\n\\] and \\(c_1\\), $x+y$, $$z$$; it costs $5 or $10, \\(\\nonsense{\\)';
    proxy.script = [says(`3. three\n4. four\n\n| a | number |\n| :-: | -: |\n| x | 1234567890 |\n\n${formulas}\n`)];
    const page = await open();
    await ask(page, 'Go');
    assert.equal(await page.getAttribute('.prose ol', 'start'), '3');
    const cell = page.locator('.prose tbody td');
    const style = (name) => cell.evaluateAll((cells, name) => cells.map((cell) => getComputedStyle(cell)[name]), name);
    assert.deepEqual(await style('textAlign'), ['center', 'right']);
    assert.deepEqual(await style('overflowWrap'), ['normal', 'normal']);
    await page.waitForSelector('.formula math');
    assert.equal(await page.locator('.formula math').count(), 4);
    assert.equal(await page.locator('.formula.display').count(), 2);
    assert.equal(await page.locator('.formula msup').count(), 2);
    assert.equal(await page.textContent('.prose .math-inline'), '\\nonsense{');
    assert.match(await page.textContent('.turn.model > .prose'), /costs \$5 or \$10/);
    assert.equal(await page.locator('.formula [style], .formula [href], .formula annotation').count(), 0);
    await close(page);
  },

  async 'an answer goes on while another conversation is open'() {
    proxy.script = [says('one two three '.repeat(20)), says('of the second')];
    proxy.pause = 20;
    const page = await open();
    await page.fill('#message', 'First');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.turn.model > .prose')?.textContent.includes('one two'));
    await page.click('#new');
    proxy.pause = 0;
    await ask(page, 'Second');
    await page.click('.chat >> text=First');
    await complete(page);
    assert.equal((await page.textContent('.turn.model > .prose')).trim(), 'one two three '.repeat(20).trim());
    assert.match(await page.textContent('.facts'), /20 tokens/);
    await close(page);
  },

  async 'a page that is closed in mid-answer keeps what had come'() {
    proxy.script = [says('one two three '.repeat(100)), says('more')];
    proxy.pause = 20;
    const page = await open();
    await page.fill('#message', 'Question');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.turn.model > .prose')?.textContent.length > 600);
    await page.reload();
    await ready(page);
    proxy.pause = 0;
    await page.click('.chat');
    assert.match(await page.textContent('.turn.model > .prose'), /^one two three one/);
    assert.match(await page.textContent('.facts'), /closed/);
    assert.equal(await page.locator('.waits, [aria-busy="true"]').count(), 0);
    await ask(page, 'Go on', 2);
    assert.equal(proxy.asked.at(-1).messages.length, 3);
    await close(page);
  },

  async 'two tabs lose nothing of each other'() {
    proxy.script = [says('first'), says('second'), says('third')];
    const one = await open();
    await ask(one, 'Question');
    const two = await one.context().newPage();
    await two.goto(proxy.url);
    await ready(two);
    await two.click('.chat');
    await ask(two, 'Of the second tab', 2);
    await one.waitForFunction(() => document.querySelector('#turns').textContent.includes('second'));
    await ask(one, 'Of the first tab', 3);
    await two.waitForFunction(() => document.querySelector('#turns').textContent.includes('third'));
    assert.equal(await two.locator('.chat').count(), 1);
    // A tab that has not heard of the other's change keeps both.
    const kept = await one.evaluate(async () => {
      const store = await import(new URL('page/store.js', document.baseURI));
      const [chat] = await store.all();
      const [mine, yours] = [structuredClone(chat), structuredClone(chat)];
      return [await store.put(mine), await store.put(yours), (await store.get(chat.id)).revision === mine.revision];
    });
    assert.deepEqual(kept, [true, false, true]);
    await close(one);
  },

  async 'of 2,000 messages those are shown that are near'() {
    const page = await open();
    await page.evaluate(async () => {
      const store = await import(new URL('page/store.js', document.baseURI));
      const turn = (number) => (number % 2 === 0
        ? { role: 'user', versions: [{ text: `question ${number}`, files: [] }], shown: 0 }
        : { role: 'model', versions: [{ id: String(number), text: `**answer** ${number}\n\n- a\n- b\n\n\`\`\`js\nconst a = ${number};\n\`\`\``, reasoning: '', calls: [], finish: 'stop' }], shown: 0 });
      await store.put({ id: 'long', name: '', changed: Date.now(), revision: 0, turns: Array.from({ length: 2000 }, (_, number) => turn(number)) });
    });
    await page.reload();
    await ready(page);
    await page.click('.chat');
    assert.ok(await page.locator('.turn').count() < 200);
    assert.match(await page.textContent('.turn:last-child'), /answer 1999/);
    for (let shown = 0, before = -1; shown !== before;) {
      before = shown;
      await page.evaluate(() => { document.querySelector('#scroll').scrollTop = 0; });
      await drawn(page);
      await drawn(page);
      shown = await page.locator('.turn').count();
      if (shown > 300) break;
    }
    assert.ok(await page.locator('.turn').count() > 300, 'earlier messages come when they are near');
    await close(page);
  },

  async 'copying where the browser has no clipboard, and the end of an answer'() {
    proxy.script = [says(`${'line\n\n'.repeat(80)}end`)];
    const page = await open();
    await page.evaluate(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
    await ask(page, 'Go');
    const below = () => page.evaluate(() => { const at = document.querySelector('#scroll'); return at.scrollHeight - at.scrollTop - at.clientHeight; });
    assert.ok(await below() < 4, `${await below()} pixels are below`);
    await page.click('.turn.user >> text=Copy');
    assert.equal(await page.textContent('#status'), 'Copied');
    await page.focus('#message');
    await page.keyboard.press('Control+V');
    assert.equal(await page.inputValue('#message'), 'Go');
    await close(page);
  },

  async 'a server that has stopped is said in words'() {
    proxy.script = [Object.assign(says('one two three '.repeat(40)), { breaks: 20 })];
    proxy.pause = 5;
    const page = await open();
    await ask(page, 'Go');
    assert.match(await page.textContent('.error'), /The server stopped in the middle of the answer/);
    assert.match(await page.textContent('.turn.model > .prose'), /^one two/);
    // The browser logs the broken connection.
    page.faults = page.faults.filter((fault) => !fault.includes('ERR_INCOMPLETE_CHUNKED_ENCODING'));
    await close(page);
  },

  async 'a text file is attached, a binary one refused'() {
    proxy.script = [says('ok')];
    const page = await open();
    await page.setInputFiles('#file', [{ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('inside ```` it') },
      { name: 'b.bin', mimeType: 'text/plain', buffer: Buffer.from([1, 0, 2]) }]);
    await page.waitForSelector('#files li');
    assert.match(await page.textContent('#hint'), /b\.bin is not a text/);
    await ask(page, 'Read it');
    const { content } = proxy.asked.at(-1).messages.at(-1);
    assert.equal(content, 'a.txt:\n`````\ninside ```` it\n`````\n\nRead it');
    await close(page);
  },

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

  async '360 pixels have no sideways scroll'() {
    for (const colorScheme of ['light', 'dark']) {
      proxy.script = [says(`${'x'.repeat(400)}\n\n\`\`\`js\n${'y'.repeat(300)}\n\`\`\`\n\n| a | b |\n| - | - |\n| ${'z'.repeat(200)} | c |\n`)];
      const page = await open(proxy.url, { viewport: PHONE, colorScheme });
      await noSideways(page, 'at the start');
      await accessible(page, `phone, ${colorScheme}`);
      await ask(page, 'w'.repeat(300));
      await noSideways(page, 'an answer');
      await page.click('#settings-open');
      await noSideways(page, 'settings');
      await page.keyboard.press('Escape');
      await page.click('#side-open');
      await noSideways(page, 'conversations');
      await accessible(page, `conversations, ${colorScheme}`);
      await page.keyboard.press('Escape');
      proxy.facts = null;
      await page.reload();
      await ready(page);
      await page.click('#experts-open');
      await page.evaluate(() => { document.querySelector('#message').value = 'Once upon a time'; document.querySelector('#composer').requestSubmit(); });
      await complete(page);
      await page.click('.token >> nth=2');
      await drawn(page);
      await noSideways(page, 'experts');
      await accessible(page, `experts, ${colorScheme}`);
      proxy.facts = { ...facts, chat_template: true };
      await close(page);
    }
  },

  async 'screenshots'() {
    for (const [colorScheme, name] of [['light', 'page.png'], ['dark', 'page-dark.png']]) {
      const page = await open(proxy.url, { colorScheme });
      await accessible(page, `the model, ${colorScheme}`);
      await page.evaluate(() => localStorage.setItem('gristmill-settings', JSON.stringify({ seed: '7', temperature: '0.6', max_tokens: '170' })));
      await page.reload();
      await ready(page);
      await page.click('#experts-open');
      await ask(page, 'Once upon a time there was an old mill by the river.');
      await page.click('.token >> nth=9');
      await drawn(page);
      await page.click('.routing tbody tr:nth-child(2) .chip');
      await drawn(page);
      await page.evaluate(() => { document.querySelector('#experts').scrollTop = 0; document.querySelector('.tokens').scrollTop = 0; });
      await accessible(page, `experts, ${colorScheme}`);
      await page.mouse.move(0, 0);
      await page.evaluate(() => document.activeElement.blur());
      await page.screenshot({ path: `${docs}/${name}` });
      await close(page);
    }
  },
};

/** The built-in model has no chat template: what a chat needs is scripted. */
const PLAIN = ['the model continues a text and its experts are shown', 'experts are asked for if the user wants them',
  'keys move in the map and in the tokens', 'screenshots'];

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  if (process.env.ONLY && !name.includes(process.env.ONLY)) continue;
  proxy.facts = PLAIN.includes(name) ? null : { ...facts, chat_template: true };
  Object.assign(proxy, { script: [], pause: 0 });
  const begin = Date.now();
  try {
    await test();
    console.log(`ok: ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${name}\n${error.stack}`);
  }
}
await browser.close();
proxy.close();
process.exitCode = failed > 0 ? 1 : 0;
