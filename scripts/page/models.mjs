// Several models: one is chosen while answers are written, and each answer keeps the name of its own.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { accessible, ask, close, complete, facts, open, proxy, ready } from './harness.mjs';
import { says } from './proxy.mjs';

/** A server with the models a and b, of which b is loaded when it is chosen: after `wait`, or not at all. */
function twoModels({ wait = null, fails = false } = {}) {
  const status = { a: 'loaded', b: 'unloaded' };
  const entry = (id) => ({ id, display_name: id, status: { value: status[id], ...(status[id] === 'loading' ? { progress: 30 } : {}) } });
  proxy.replies['/v1/models'] = () => JSON.stringify({ data: [entry('a'), entry('b')] });
  for (const name of ['a', 'b']) {
    proxy.replies[`/model?model=${name}`] = () => JSON.stringify({ ...facts, name, title: null, chat_template: true, experts: name === 'a' ? facts.experts : [0, 0] });
  }
  proxy.replies['/models/load'] = async () => {
    status.b = 'loading';
    await wait;
    if (fails) throw new Error('the connection breaks');
    status.b = 'loaded';
    return '{"success": true}';
  };
}

const groups = (page) => page.locator('.bar-models optgroup').evaluateAll((found) =>
  found.map(({ label, children }) => [label, ...[...children].map(({ value }) => value)]));
const asked = () => proxy.asked.at(-1).model;

export const tests = {
  async 'another model keeps the running answer and the draft'() {
    let release;
    twoModels({ wait: new Promise((done) => { release = done; }) });
    proxy.script = [says('one two three '.repeat(30)), says('of the other')];
    proxy.pause = 20;
    const page = await open();
    assert.deepEqual(await groups(page), [['Loaded', 'a'], ['Loaded when chosen', 'b']]);
    await page.click('#experts-open');
    await page.fill('#message', 'First');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.turn.model > .prose')?.textContent.includes('one two'));
    assert.equal(asked(), 'a');
    await page.fill('#message', 'A draft');
    await page.selectOption('.bar-models', 'b');
    await page.waitForFunction(() => document.querySelector('#hint').textContent.includes('Loading b: 30 %'));
    assert.equal(await page.textContent('#model'), 'a', 'the one before, until it is loaded');
    await page.focus('.bar-models');
    await page.waitForFunction(() => document.querySelectorAll('.bar-models optgroup')[1]?.label === 'Being loaded');
    release();
    await page.waitForFunction(() => document.querySelector('#model').textContent === 'b');
    await complete(page);
    assert.equal((await page.textContent('.turn.model > .prose')).trim(), 'one two three '.repeat(30).trim());
    assert.equal(await page.inputValue('#message'), 'A draft');
    proxy.pause = 0;
    await page.focus('#message');
    await page.keyboard.press('Enter');
    await complete(page, 2);
    assert.equal(asked(), 'b');
    const names = () => page.locator('.turn.model .facts span:first-child').allTextContents();
    assert.deepEqual(await names(), ['a', 'b']);
    assert.deepEqual(await page.locator('.turn.model h2').allTextContents(), ['a', 'b']);
    await accessible(page, 'two models');
    await page.reload();
    await ready(page);
    assert.equal(await page.inputValue('.bar-models'), 'b');
    assert.deepEqual(await names(), ['a', 'b']);
    assert.deepEqual(await groups(page), [['Loaded', 'a', 'b']]);
    await page.hover('.chats li li');
    await page.click('.more');
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('.chat-actions >> text="Markdown"')]);
    assert.match(fs.readFileSync(await download.path(), 'utf8'), /## a\n[^#]*## You\n[^#]*## b\n/);
    await close(page);
  },

  async 'a message waits for the model that is being loaded, and an answer that another continues names both'() {
    let release;
    twoModels({ wait: new Promise((done) => { release = done; }) });
    proxy.script = [says('The first half', { finish: 'length' }), says(' and the second.')];
    const page = await open();
    await ask(page, 'Go');
    await page.selectOption('.bar-models', 'b');
    await page.click('.foot >> text="Continue"');
    await page.waitForSelector('.turn.model[aria-busy="true"]');
    assert.equal(asked(), 'a');
    release();
    await page.waitForSelector('text=and the second.');
    await complete(page);
    assert.equal(asked(), 'b');
    assert.equal(await page.textContent('.turn.model .facts span'), 'a, then b');
    await close(page);
  },

  async 'a model that cannot be loaded leaves the one before'() {
    twoModels({ fails: true });
    proxy.script = [says('ok')];
    const page = await open();
    await page.fill('#message', 'A draft');
    await page.selectOption('.bar-models', 'b');
    await page.waitForFunction(() => document.querySelector('#hint').dataset.kind === 'fault');
    assert.match(await page.textContent('#hint'), /^b cannot be loaded\. The server does not answer/);
    assert.equal(await page.inputValue('.bar-models'), 'a');
    await page.focus('#message');
    await page.keyboard.press('Enter');
    await complete(page);
    assert.equal(asked(), 'a');
    await page.goto(`${proxy.url}?model=gone`);
    await ready(page);
    assert.equal(await page.inputValue('.bar-models'), 'a', 'a model that the server does not have');
    page.faults = page.faults.filter((fault) => !fault.includes('Failed to load resource'));
    await close(page);
  },
};
