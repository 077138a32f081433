// Conversations: found, named, with settings of their own, continued; keys and themes.

import assert from 'node:assert/strict';
import { accessible, ask, close, complete, drawn, open, proxy, ready, TOUCHED } from './harness.mjs';
import { says } from './proxy.mjs';

const last = () => proxy.asked.at(-1);
const titles = (page) => page.locator('.chat-title').allTextContents();

/** Opens the actions of the first conversation and takes one. */
async function act(page, name) {
  await page.hover('.chats li li');
  await page.click('.more');
  await page.click(`.chat-actions >> text="${name}"`);
}

/** An Enter that ends an input of Japanese, as Safari sends it. */
const ending = (page, at) => page.locator(at).evaluate((field) => {
  const event = new KeyboardEvent('keydown', { key: 'Enter', keyCode: 229, bubbles: true, cancelable: true });
  field.dispatchEvent(event);
  return event.defaultPrevented;
});

export const tests = {
  async 'an Enter that ends an input of Japanese sends nothing'() {
    proxy.script = [says('one')];
    const page = await open();
    await page.fill('#message', 'にほん');
    assert.equal(await ending(page, '#message'), false);
    assert.equal(await page.locator('.turn').count(), 0);
    await ask(page, 'Mills');
    await page.click('.turn.user >> text="Edit"');
    assert.equal(await ending(page, '.edit'), false);
    await page.click('text="Cancel"');
    await act(page, 'Rename');
    await page.fill('.rename', 'ミル');
    await ending(page, '.rename');
    assert.equal(await page.locator('.rename').count(), 1);
    await page.keyboard.press('Enter');
    assert.deepEqual(await titles(page), ['ミル']);
    await close(page);
  },

  async 'a conversation has an address, and a draft survives'() {
    proxy.script = [says('one'), says('two')];
    const page = await open();
    await page.fill('#message', 'not sent');
    await page.reload();
    await ready(page);
    assert.equal(await page.inputValue('#message'), 'not sent');
    await ask(page, 'First');
    const first = new URL(page.url()).hash;
    assert.match(first, /^#\/chat\/./);
    await page.fill('#message', 'to the first');
    await page.click('#new');
    assert.equal(await page.inputValue('#message'), '');
    await ask(page, 'Second');
    await page.goBack();
    assert.match(await page.textContent('#turns'), /First/);
    assert.equal(await page.inputValue('#message'), 'to the first');
    await page.reload();
    await ready(page);
    assert.match(await page.textContent('#turns'), /First/);
    assert.equal(new URL(page.url()).hash, first);
    await page.goForward();
    assert.match(await page.textContent('#turns'), /Second/);
    await close(page);
  },

  async 'a browser that keeps nothing says so'() {
    proxy.script = [says('one')];
    const page = await open();
    assert.match(await page.textContent('#kept'), /Kept in this browser/);
    await page.addInitScript(() => { Object.defineProperty(window, 'indexedDB', { get() { throw new DOMException('no', 'SecurityError'); } }); });
    await page.goto(proxy.url);
    await ready(page);
    assert.match(await page.textContent('#kept'), /keeps no conversations: export them/);
    await ask(page, 'Mills');
    assert.deepEqual(await titles(page), ['Mills']);
    await close(page);
  },

  async 'words of titles and messages are found'() {
    proxy.script = [says('It is **Oslo**, by the fjord.'), says('second'), says('third')];
    const page = await open();
    await ask(page, 'The capital of Norway?');
    await page.click('#new');
    await ask(page, 'Bread');
    await page.click('#new');
    await ask(page, 'Mills');
    assert.deepEqual(await titles(page), ['Mills', 'Bread', 'The capital of Norway?']);
    await page.keyboard.press('Control+K');
    await page.keyboard.type('FJORD');
    assert.deepEqual(await titles(page), ['The capital of Norway?']);
    assert.equal(await page.textContent('.snippet mark'), 'fjord');
    await accessible(page, 'search');
    await page.keyboard.press('Enter');
    assert.match(await page.textContent('#turns'), /Oslo/);
    await page.fill('#search', 'bre');
    assert.deepEqual(await titles(page), ['Bread']);
    await page.fill('#search', 'nowhere');
    assert.match(await page.textContent('#chats-none'), /No conversation has these words/);
    await page.press('#search', 'Escape');
    assert.equal((await titles(page)).length, 3);
    await close(page);
  },

  async 'a conversation is renamed, and its title is not cut by a hidden button'() {
    proxy.script = [says('one')];
    const page = await open();
    await ask(page, 'A question about the mill that is longer than the list is wide, but not than two lines');
    await page.mouse.move(700, 300);
    const [inner, whole] = await page.evaluate(() => ['.chat-title', '.chats li li'].map((at) => document.querySelector(at).getBoundingClientRect().width));
    assert.ok(inner > whole - 20, `the title has ${inner} of ${whole} pixels`);
    await act(page, 'Rename');
    await page.fill('.rename', 'Mills');
    await page.keyboard.press('Escape');
    assert.match((await titles(page))[0], /^A question/);
    await act(page, 'Rename');
    await page.fill('.rename', ' Mills of Holland ');
    await page.keyboard.press('Enter');
    assert.deepEqual(await titles(page), ['Mills of Holland']);
    await page.waitForFunction(async () => {
      const { all } = await import(new URL('page/store.js', document.baseURI));
      return (await all()).some(({ name }) => name === 'Mills of Holland');
    });
    await page.reload();
    await ready(page);
    assert.deepEqual(await titles(page), ['Mills of Holland']);
    await close(page);
  },

  async 'each conversation keeps its system prompt and settings, and presets fill them'() {
    proxy.script = Array.from({ length: 4 }, () => says('ok'));
    const page = await open(proxy.url, { settings: { system: 'Be brief.', temperature: '0.5' } });
    await ask(page, 'First');
    assert.deepEqual([last().messages[0].content, last().temperature], ['Be brief.', 0.5]);
    await page.click('#new');
    await page.click('.setup-line button');
    await page.fill('#setup [name=system]', 'You are a miller.');
    await page.fill('#setup [name=temperature]', '0.9');
    await page.fill('.keep-preset input', 'Miller');
    await page.click('text="Keep as a preset"');
    await accessible(page, 'settings of a conversation');
    await page.click('#setup >> text="Save"');
    assert.match(await page.textContent('.setup-line'), /Preset.*Miller/);
    await ask(page, 'Second');
    assert.deepEqual([last().messages[0].content, last().temperature], ['You are a miller.', 0.9]);
    // The first conversation keeps what it began with, whatever the settings say now.
    await page.evaluate(() => localStorage.setItem('gristmill-settings', JSON.stringify({ system: 'Rhyme.' })));
    await page.reload();
    await ready(page);
    await page.click('.chat >> text=First');
    await ask(page, 'Again', 2);
    assert.deepEqual([last().messages[0].content, 'temperature' in last()], ['Be brief.', false]);
    await page.click('.setup-line button');
    await page.selectOption('#setup [name=preset]', 'Miller');
    assert.equal(await page.inputValue('#setup [name=system]'), 'You are a miller.');
    await page.click('#setup >> text="Save"');
    await ask(page, 'As a miller', 3);
    assert.deepEqual([last().messages[0].content, last().temperature], ['You are a miller.', 0.9]);
    await page.click('.setup-line button');
    await page.click('text="Delete this preset"');
    assert.deepEqual(await page.locator('#setup [name=preset] option').allTextContents(), ['none yet']);
    await page.keyboard.press('Escape');
    await close(page);
  },

  async 'an answer that was cut goes on where it ended'() {
    proxy.script = [says('The first half', { finish: 'length' }), says(' and the second.')];
    const page = await open();
    await ask(page, 'Go');
    assert.match(await page.textContent('.facts'), /20 tokens.*cut by a limit/);
    await page.click('.foot >> text="Continue"');
    await complete(page);
    assert.equal((await page.textContent('.turn.model > .prose')).trim(), 'The first half and the second.');
    assert.match(await page.textContent('.facts'), /40 tokens/);
    const { continue_final_message: continues, add_generation_prompt: begins, messages } = last();
    assert.deepEqual([continues, begins, messages.at(-1)], [true, false, { role: 'assistant', content: 'The first half' }]);
    assert.equal(await page.locator('.foot >> text="Continue"').count(), 0);
    await close(page);
  },

  async 'a text that was cut goes on with the experts of both parts'() {
    const page = await open(proxy.url, { settings: { seed: '7', max_tokens: '8' } });
    await page.click('#experts-open');
    await ask(page, 'Once upon a time');
    const first = await page.textContent('.turn.model > .prose');
    await page.click('.foot >> text="Continue"');
    await page.waitForFunction(() => document.querySelector('.facts')?.textContent.includes('16 tokens'));
    const both = await page.textContent('.turn.model > .prose');
    assert.ok(both.startsWith(first.trimEnd()) && both.length > first.length, both);
    assert.ok(last().prompt.startsWith('Once upon a time') && last().prompt.length > 20, last().prompt);
    await drawn(page);
    assert.equal(await page.locator('.token').count(), 16);
    await close(page);
  },

  async 'keys, and their list'() {
    proxy.script = [says('ok')];
    const page = await open();
    await ask(page, 'Why?');
    assert.equal(last().messages.at(-1).content, 'Why?');
    await page.keyboard.press('Control+Shift+O');
    assert.equal(await page.locator('.turn').count(), 0);
    await page.keyboard.press('Control+,');
    assert.ok(await page.isVisible('#settings[open]'));
    await page.keyboard.press('Escape');
    await page.focus('#scroll');
    await page.keyboard.press('?');
    assert.match(await page.textContent('#shortcuts[open]'), /New conversation.*Search conversations.*Write a message.*Stop the answer.*Settings/);
    await accessible(page, 'keys');
    await page.keyboard.press('Escape');
    await page.focus('#scroll');
    await page.keyboard.press('/');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'message');
    assert.equal(await page.inputValue('#message'), '');
    await page.keyboard.press('Control+Shift+E');
    assert.ok(await page.isVisible('#experts'));
    await close(page);
  },

  async 'shortcuts of one key can be switched off'() {
    const page = await open();
    await page.keyboard.press('Control+,');
    await page.selectOption('#set-single_keys', 'off');
    await page.click('#settings >> text="Save"');
    await page.reload();
    await ready(page);
    await page.focus('#scroll');
    await page.keyboard.press('?');
    await page.keyboard.press('/');
    assert.equal(await page.locator('#shortcuts[open]').count(), 0);
    assert.notEqual(await page.evaluate(() => document.activeElement.id), 'message');
    await page.click('#shortcuts-open');
    assert.doesNotMatch(await page.textContent('#shortcuts[open]'), /Write a message|This list/);
    await close(page);
  },

  async 'the theme is the one of the system, or the one that is chosen'() {
    const page = await open(proxy.url, { colorScheme: 'dark' });
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await paper();
    await page.click('#settings-open');
    await page.check('[name=theme][value=light]', { force: true });
    const light = await paper();
    assert.notEqual(light, dark);
    await accessible(page, 'the light theme');
    await page.keyboard.press('Escape');
    await page.reload();
    await ready(page);
    assert.equal(await paper(), light);
    await page.click('#settings-open');
    assert.ok(await page.isChecked('[name=theme][value=light]'));
    await page.check('[name=theme][value=system]', { force: true });
    assert.equal(await paper(), dark);
    await close(page);
  },

  async 'on a phone Enter starts a line, and the button sends'() {
    proxy.script = [says('ok')];
    const page = await open(proxy.url, TOUCHED);
    await page.fill('#message', 'one');
    await page.keyboard.press('Enter');
    await page.keyboard.type('two');
    assert.equal(await page.inputValue('#message'), 'one\ntwo');
    await page.tap('#send');
    await complete(page);
    assert.equal(last().messages.at(-1).content, 'one\ntwo');
    await close(page);
  },

  async 'conversations of earlier versions of the page are read'() {
    const page = await open();
    await page.evaluate(() => new Promise((done, fail) => {
      const request = indexedDB.open('gristmill', 1);
      request.onsuccess = () => {
        const transaction = request.result.transaction('conversations', 'readwrite');
        const store = transaction.objectStore('conversations');
        // Before messages had versions, conversations had names, and failures had kinds.
        store.put({ id: 'first', changed: 3, turns: [{ role: 'user', text: 'Oldest', files: [] },
          { role: 'model', shown: 1, versions: [{ id: 1, text: 'bad', reasoning: '', calls: [], finish: 'error', usage: null, error: 'It broke' },
            { id: 2, text: 'good', reasoning: '', calls: [], finish: null, usage: { prompt_tokens: 3 } }] }] });
        store.put({ id: 'second', name: '', changed: 2, revision: 4, turns: [{ role: 'user', shown: 0, versions: [
          { text: 'Later', files: [] }, { text: 'Edited', files: [], rest: [{ role: 'user', text: 'Rest', files: [] }] }] }] });
        store.put({ id: 'damaged', changed: 1, turns: 'none' });
        transaction.oncomplete = done;
        transaction.onerror = fail;
      };
    }));
    await page.evaluate(() => {
      localStorage.setItem('gristmill-settings', JSON.stringify({ system: 'Be brief.', temperature: 0.5, tools: null }));
      localStorage.setItem('gristmill-presets', '[{"name": "a"}, {"name": 1}, 2]');
    });
    await page.reload();
    await ready(page);
    assert.deepEqual(await titles(page), ['Oldest', 'Later']);
    await page.click('.chat >> text=Oldest');
    assert.match(await page.textContent('#turns'), /Oldest[^]*good[^]*closed/);
    await page.click('.turn.model [aria-label="The version before"]');
    assert.match(await page.textContent('.failure'), /It broke/);
    await page.click('.chat >> text=Later');
    await page.click('[aria-label="The next version"]');
    assert.match(await page.textContent('#turns'), /Edited[^]*Rest/);
    await page.click('.setup-line button');
    assert.deepEqual(await page.locator('#setup [name=preset] option').allTextContents(), ['none', 'a']);
    await page.keyboard.press('Escape');
    await close(page);
  },
};

/** Tests of the built-in model as it is. */
export const plain = ['a text that was cut goes on with the experts of both parts'];
