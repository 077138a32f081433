// How much of the context a conversation fills, and what the page offers before it is full.

import assert from 'node:assert/strict';
import { accessible, ask, close, facts, noSideways, open, PHONE, proxy, ready } from './harness.mjs';
import { refuses, says } from './proxy.mjs';

/** A scripted answer leaves 120 tokens: 100 of the prompt, and 20. */
const withContext = (context) => { proxy.facts = { ...facts, chat_template: true, context }; };
const meter = (page) => page.locator('#context meter').getAttribute('aria-label');

export const tests = {
  async 'the context is metered, also after a reload, and of what is not sent'() {
    withContext(1000);
    proxy.replies['/tokenize'] = (body) => JSON.stringify({ count: Math.floor(JSON.parse(body).prompt.length / 2) });
    proxy.script = [says('ok', { reasoning: 'x'.repeat(40) })];
    const page = await open();
    assert.equal(await page.isVisible('#context'), false);
    await ask(page, 'Go');
    assert.match(await meter(page), /about 110 of 1,000 tokens/, 'reasoning is not read again');
    assert.equal(await page.isVisible('#advice'), false);
    await page.reload();
    await ready(page);
    assert.match(await meter(page), /about 110 of/);
    await page.fill('#message', 'x'.repeat(400));
    assert.match(await meter(page), /about 210 of/);
    await page.fill('#message', 'x'.repeat(1000));
    await page.waitForFunction(() => document.querySelector('#context meter').getAttribute('aria-label').includes('about 610'));
    await page.setInputFiles('#file', { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('y'.repeat(1000)) });
    await page.waitForSelector('#advice:not([hidden])');
    assert.match(await page.textContent('#advice'), /has about 1,1\d\d tokens, and the model can read 1,000\. Shorten the message, leave out a file/);
    await accessible(page, 'the meter');
    await page.click('#files button');
    await page.waitForSelector('#advice', { state: 'hidden' });
    await close(page);
  },

  async 'before the context is full, a summary goes on in a new conversation'() {
    withContext(140);
    proxy.script = [says('An answer.'), refuses(503, 'the device failed'), says('We spoke of *mills*.'), says('Yes.')];
    const page = await open(proxy.url, { viewport: PHONE });
    await page.click('.setup-line button');
    await page.fill('#setup [name=system]', 'You are a miller.');
    await page.click('#setup >> text="Save"');
    await ask(page, 'Mills?');
    assert.match(await page.textContent('#advice'), /fills 86 % of the model’s context/);
    await accessible(page, 'advice');
    await noSideways(page, 'advice');
    await page.click('text="Go on with a summary"');
    await page.waitForFunction(() => document.querySelector('#hint').dataset.kind === 'fault');
    assert.match(await page.textContent('#hint'), /cannot answer now/);
    assert.equal(await page.locator('.turn').count(), 2, 'nothing of it is in the conversation');
    await page.click('text="Go on with a summary"');
    await page.waitForFunction(() => document.querySelector('#message').value !== '');
    const { messages } = proxy.asked.at(-1);
    assert.deepEqual(messages.map(({ role }) => role), ['system', 'user', 'assistant', 'user']);
    assert.match(messages.at(-1).content, /^Summarise/);
    assert.equal(await page.inputValue('#message'), 'This is a summary of our conversation so far:\n\nWe spoke of *mills*.\n\n');
    assert.equal(await page.locator('.turn').count(), 0);
    await page.locator('#message').evaluate((field) => { field.value += 'And rye?'; field.dispatchEvent(new Event('input')); });
    await page.click('#send');
    await page.waitForSelector('text=Yes.');
    const next = proxy.asked.at(-1).messages;
    assert.deepEqual([next.length, next[0].content], [2, 'You are a miller.']);
    assert.match(next[1].content, /mills[^]*And rye\?$/);
    assert.deepEqual(await page.locator('.chat-title').allTextContents(), ['Mills? (continued)', 'Mills?']);
    page.faults = page.faults.filter((fault) => !fault.includes('Failed to load resource'));
    await close(page);
  },
};
