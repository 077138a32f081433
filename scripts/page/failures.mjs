// Why there is no answer, in words, with a button that does something about it; and how far a long prompt is read.

import assert from 'node:assert/strict';
import { accessible, ask, close, complete, open, proxy } from './harness.mjs';
import { refuses, says } from './proxy.mjs';

const TOO_LONG = 'This model\'s maximum context length is 512 tokens, but the request has at least 700 tokens in messages; reduce the length of the messages';

/** What the server replies, what the page says, and which button it has. */
const REFUSALS = [
  [refuses(429, 'the queue is full', { code: 'queue_full', headers: { 'retry-after': '3' } }), /The server is busy.*in 3 s/, 'Try again'],
  [refuses(503, 'the device failed'), /cannot answer now.*the device failed/, 'Try again'],
  [refuses(500, 'an inner fault'), /The server failed.*an inner fault/, 'Try again'],
  [refuses(403, 'the origin http://localhost:3000 is not allowed'), /does not let this page ask/, 'Try again'],
  [refuses(413, 'the body has 9 MiB'), /larger than the server takes/, null],
  [refuses(400, TOO_LONG, { code: 'context_length_exceeded', param: 'messages' }), /too long for the model: it has 700 tokens, and the model can read 512/, 'New conversation'],
  [refuses(400, 'the model file has no chat template; send a prompt'), /another model now/, 'Load the page again'],
  [refuses(400, 'top_p: 2 is out of range', { param: 'top_p' }), /does not take a setting: top_p/, 'Open the settings'],
  [refuses(400, 'messages[0] is wrong', { param: 'messages' }), /refused the request: messages\[0\] is wrong/, 'Try again'],
];

/** The browser logs each reply that is no success. */
const forgive = (page) => { page.faults = page.faults.filter((fault) => !fault.includes('Failed to load resource')); };

export const tests = {
  async 'refusals are said in words, with a button that helps'() {
    const page = await open();
    for (const [refusal, words, button] of REFUSALS) {
      proxy.script = [refusal, says('Now it works.')];
      await page.click('#new');
      await ask(page, 'Go');
      assert.match(await page.textContent('.failure'), words);
      assert.deepEqual(await page.locator('.remedies button').allTextContents(), button ? [button] : []);
      if (button !== 'Try again') continue;
      await page.click('.remedies button');
      await page.waitForSelector('text=Now it works.');
      assert.equal(await page.locator('.failure:visible').count(), 0);
      assert.equal(await page.locator('[aria-label="The version before"]').count(), 0, 'what failed before its first token is no version');
    }
    proxy.script = [refuses(400, 'top_p: 2 is out of range', { param: 'top_p' }), refuses(400, TOO_LONG, { code: 'context_length_exceeded' })];
    await page.click('#new');
    await ask(page, 'Go');
    await accessible(page, 'a failure');
    await page.click('.remedies button');
    assert.ok(await page.isVisible('#settings[open]'));
    await page.keyboard.press('Escape');
    await page.click('#new');
    await ask(page, 'Go');
    await page.click('.remedies button');
    assert.equal(await page.locator('.turn').count(), 0);
    forgive(page);
    await close(page);
  },

  async 'a key that is not given is asked for again'() {
    const refusal = refuses(401, 'a key is needed');
    proxy.script = [refusal, says('Welcome.')];
    const page = await open();
    await page.fill('#message', 'Go');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#key[open]');
    await page.keyboard.press('Escape');
    await complete(page);
    assert.match(await page.textContent('.failure'), /wants a key/);
    await page.click('text="Enter a key"');
    await page.fill('#key-input', 'secret');
    await page.keyboard.press('Enter');
    await page.waitForSelector('text=Welcome.');
    forgive(page);
    await close(page);
  },

  async 'a server that does not answer is asked again'() {
    const page = await open();
    proxy.down = true;
    await ask(page, 'Go');
    assert.match(await page.textContent('.failure'), /The server does not answer/);
    proxy.down = false;
    // The page itself is there, and the model cannot be asked.
    await page.route('**/model', (route) => route.abort());
    await page.reload();
    await page.waitForSelector('.failure');
    assert.match(await page.textContent('.failure'), /The server does not answer/);
    await page.unroute('**/model');
    await page.click('text="Try again"');
    await page.waitForFunction(() => document.activeElement?.id === 'message');
    proxy.script = [says('Back.')];
    await page.click('.chat');
    await page.click('text="Try again"');
    await page.waitForSelector('text=Back.');
    forgive(page);
    await close(page);
  },

  async 'an answer that broke is continued, or asked for again'() {
    proxy.script = [Object.assign(says('one two three '.repeat(10)), { breaks: 6 }), says('— and on.'), [{ error: { message: 'the device failed' } }]];
    // The browser repeats a request whose connection breaks before its reply has begun.
    proxy.pause = 5;
    const page = await open();
    await ask(page, 'Go');
    assert.match(await page.textContent('.failure'), /stopped in the middle/);
    assert.deepEqual(await page.locator('.remedies button').allTextContents(), ['Continue', 'Try again']);
    await page.click('.remedies >> text="Continue"');
    await page.waitForSelector('text=and on.');
    assert.match(await page.textContent('.turn.model > .prose'), /^one two.*— and on\.\s*$/s);
    await page.click('.foot >> text="Again"');
    await page.waitForSelector('.failure:visible');
    assert.match(await page.textContent('.failure'), /the device failed/);
    page.faults = page.faults.filter((fault) => !fault.includes('ERR_INCOMPLETE_CHUNKED_ENCODING'));
    await close(page);
  },

  async 'how far a long prompt is read'() {
    let [read, running, waiting, release] = [0, 1, 1, null];
    proxy.replies['/metrics'] = () => `gristmill_requests_waiting ${waiting}\ngristmill_requests_running ${running}\ngristmill_step_tokens_sum ${1000 + read}\n`;
    proxy.replies['/tokenize'] = () => JSON.stringify({ count: 8000 });
    proxy.script = [Object.assign(says('Read.'), { wait: new Promise((done) => { release = done; }) })];
    const page = await open();
    await page.fill('#message', 'A long text');
    await page.keyboard.press('Enter');
    const shows = (text) => page.waitForFunction((wanted) => document.querySelector('.progress')?.textContent.includes(wanted), text);
    await shows('Waiting for the server');
    [read, waiting] = [2000, 0];
    await shows('2,000 of 8,000 tokens');
    assert.equal(await page.evaluate(() => document.querySelector('.progress progress').value), 0.25);
    await accessible(page, 'progress');
    running = 3;
    await shows('beside 2 other requests');
    release();
    await complete(page);
    assert.equal(await page.isVisible('.progress'), false);
    assert.equal((await page.textContent('.turn.model > .prose')).trim(), 'Read.');
    await close(page);
  },
};
