// Conversations as files.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { ask, close, open, proxy } from './harness.mjs';
import { says } from './proxy.mjs';

const FORMAT = 'gristmill-conversations';

/** The text of the file that a click downloads, and its name. */
async function downloaded(page, click) {
  const [download] = await Promise.all([page.waitForEvent('download'), click()]);
  return [fs.readFileSync(await download.path(), 'utf8'), download.suggestedFilename()];
}

async function act(page, name) {
  await page.hover('.chats li li');
  await page.click('.more');
  await page.click(`.chat-actions >> text="${name}"`);
}

/** Imports a value or a text, and returns what the page says of it. */
async function take(page, value) {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  await page.evaluate(() => { document.querySelector('#import-said').textContent = ''; });
  await page.setInputFiles('#import-file', { name: 'a.json', mimeType: 'application/json', buffer: Buffer.from(text) });
  await page.waitForFunction(() => document.querySelector('#import-said').textContent !== '');
  return page.textContent('#import-said');
}

const user = { role: 'user', shown: 0, versions: [{ text: 'a', files: [] }] };
const model = { role: 'model', shown: 0, versions: [{ text: 'b', reasoning: '', calls: [], finish: 'stop' }] };
const file = (conversation, more = {}) => ({ format: FORMAT, version: 1, conversations: [{ id: 'x', name: '', changed: 1, turns: [user], ...conversation }], ...more });
/** Turns within versions within turns. */
const nested = (depth) => (depth === 0 ? [user] : [{ ...user, versions: [{ text: 'a', files: [], rest: nested(depth - 1) }] }]);

/** Files that are refused as a whole, and why. */
const BAD = [
  ['{', /is not JSON/],
  ['null', /not an export/],
  [[], /not an export/],
  [{ format: 'other', conversations: [] }, /not an export/],
  [{ format: FORMAT, version: 2, conversations: [] }, /version 2/],
  [{ format: FORMAT, version: 1, conversations: {} }, /conversations is not a list/],
  [file({ id: 5 }), /conversation 1: id is not a text/],
  [file({ id: 'x'.repeat(300) }), /at most 200/],
  [file({ name: {} }), /name is not a text/],
  [file({ changed: 'now' }), /changed is not a number/],
  [file({ turns: null }), /turns is not a list/],
  [file({ turns: [null] }), /turn 1 is not an object/],
  [file({ turns: [{ role: 'system' }] }), /role "system" is unknown/],
  [file({ turns: [{ ...user, versions: [] }] }), /there is no version/],
  [file({ turns: [{ ...user, shown: 1 }] }), /shown is not one of the 1 versions/],
  [file({ turns: [{ ...user, shown: '__proto__' }] }), /shown is not one/],
  [file({ turns: [{ ...user, versions: [{ text: 1, files: [] }] }] }), /text is not a text/],
  [file({ turns: [{ ...user, versions: [{ text: 'a', files: [{ name: 'a' }] }] }] }), /text of a file is not a text/],
  [file({ turns: [{ ...user, versions: [{ text: 'a', files: [{ name: 'a', text: '', image: 'https://a.example/b.png' }] }] }] }), /no data: URL of an image/],
  [file({ turns: [{ ...model, versions: [{ text: 'a', calls: [{ id: 'a', name: {}, arguments: '' }] }] }] }), /name of a call is not a text/],
  [file({ turns: [{ role: 'tool', results: 'none' }] }), /results is not a list/],
  [file({ turns: nested(600) }), /deeper than/],
  [file({ turns: Array.from({ length: 20001 }, () => user) }), /at most 20000/],
  [file({ setup: { system: [] } }), /system is not a text/],
  [file({}, { presets: [{ name: ' ' }] }), /preset 1 has no name/],
];

export const tests = {
  async 'conversations are exported and imported with all versions'() {
    proxy.script = [says('first answer', { reasoning: 'a thought' }), says('second answer'), says('third')];
    const page = await open();
    await page.click('.setup-line button');
    await page.fill('#setup [name=system]', 'You are a miller.');
    await page.fill('.keep-preset input', 'Miller');
    await page.click('text="Keep as a preset"');
    await page.click('#setup >> text="Save"');
    await page.setInputFiles('#file', { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('inside ```` it') });
    await page.waitForSelector('#files li');
    await ask(page, 'Question?');
    await page.click('.foot >> text="Again"');
    await page.waitForSelector('text=second answer');
    await act(page, 'Rename');
    await page.fill('.rename', 'About: mills / bread');
    await page.keyboard.press('Enter');

    const [markdown, name] = await downloaded(page, () => act(page, 'Markdown'));
    assert.equal(name, 'About-mills-bread.md');
    assert.match(markdown, /^# About: mills \/ bread\n\n> System prompt: You are a miller\.\n\n## You\n\na\.txt:\n\n`````\ninside ```` it\n`````\n\nQuestion\?\n\n## gristmill-stories\n\nsecond answer\n$/);
    const [one, oneName] = await downloaded(page, () => act(page, 'Export'));
    assert.equal(oneName, 'About-mills-bread.json');
    assert.equal(JSON.parse(one).conversations.length, 1);
    await page.click('#new');
    await ask(page, 'Another');
    const [all] = await downloaded(page, () => page.click('#export'));
    assert.equal(JSON.parse(all).conversations.length, 2);
    assert.match(await take(page, all), /^0 conversations were imported; 2 were here already/);
    await close(page);

    const other = await open();
    assert.match(await take(other, all), /^2 conversations were imported/);
    await other.reload();
    await other.waitForSelector('.chat');
    await other.click('.chat >> text=About');
    assert.match(await other.textContent('#turns'), /inside[^]*Question\?[^]*second answer[^]*2 of 2/);
    await other.click('[aria-label="The version before"]');
    assert.match(await other.textContent('#turns'), /a thought[^]*first answer/);
    assert.match(await other.textContent('.setup-line'), /You are a miller|Miller/);
    await other.click('.setup-line button');
    assert.deepEqual(await other.locator('#setup [name=preset] option').allTextContents(), ['none', 'Miller']);
    await other.keyboard.press('Escape');
    await close(other);
  },

  async [`${BAD.length} files that are wrong are refused as a whole`]() {
    const page = await open();
    for (const [value, why] of BAD) {
      const said = await take(page, value);
      assert.match(said, /^Nothing was imported: /);
      assert.match(said, why);
      assert.ok(said.length < 300, `${said.length} characters`);
    }
    const [large, huge] = await page.evaluate(async () => {
      const { readFile } = await import(new URL('page/transfer.js', document.baseURI));
      const said = (file) => readFile(file).then(() => 'taken', (error) => error.message);
      const text = '`'.repeat(9 << 20);
      const file = { format: 'gristmill-conversations', version: 1, conversations: [{ id: 'x', changed: 1, turns: [{ role: 'user', text, files: [] }] }] };
      return [await said(new File([JSON.stringify(file)], 'large.json')), await said({ name: 'huge.json', size: 65 << 20, text: () => { throw new Error('was read'); } })];
    });
    assert.match(large, /text has 9437184 characters; at most 8388608/);
    assert.match(huge, /huge\.json has 65\.0 MiB; at most 64\.0 MiB/);
    assert.equal(await page.locator('.chat').count(), 0);
    // What is not known is left out, and what is missing has its usual value.
    const odd = file({ turns: [{ ...user, onclick: 'x' }, { ...model, versions: [{ text: 'b', finish: 'odd', usage: { prompt_tokens: -1 }, results: { toString: 'x' } }] }], changed: 1e300, polluted: { a: 1 } });
    assert.match(await take(page, odd), /^1 conversation was imported/);
    await page.click('.chat');
    assert.match(await page.textContent('#turns'), /a[^]*b/);
    const kept = await page.evaluate(async () => {
      const store = await import(new URL('page/store.js', document.baseURI));
      const [chat] = await store.all();
      return [Object.keys(chat), chat.changed <= Date.now(), Object.keys(chat.turns[0]), chat.turns[1].versions[0].usage];
    });
    assert.deepEqual(kept, [['id', 'name', 'changed', 'revision', 'setup', 'turns'], true, ['role', 'versions', 'shown'], null]);
    await close(page);
  },
};
