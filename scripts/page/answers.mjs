// Answers: what is shown of them, and what the browser keeps.

import assert from 'node:assert/strict';
import { accessible, ask, browser, close, complete, drawn, open, proxy, ready } from './harness.mjs';
import { says } from './proxy.mjs';

export const tests = {
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
    await page.hover('.chats li li');
    await page.click('.more');
    await page.click('.chat-actions >> text=Delete');
    await page.click('.chat-actions >> text=Delete for good?');
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

  async 'roots are drawn and brackets stretch without a math font of the system'() {
    proxy.script = [says('$2$ and $\\sqrt{2}$, $(x)$ and $$\\left(\\frac{\\frac{a}{b}}{\\frac{c}{d}}\\right)$$')];
    const page = await open();
    await ask(page, 'Go');
    await page.waitForSelector('.formula msqrt');
    await page.evaluate(() => document.fonts.ready);
    assert.ok(await page.evaluate(() => [...document.fonts].some(({ family, status }) => /gristmill math/.test(family) && status === 'loaded')));
    const width = (at) => page.locator('.formula math').nth(at).evaluate((math) => math.getBoundingClientRect().width);
    const [two, root] = [await width(0), await width(1)];
    assert.ok(root > 1.5 * two, `a root of 2 has ${root} pixels, 2 has ${two}`);
    const height = (at) => page.locator('.formula math').nth(at).locator('mo').first().evaluate((bracket) => bracket.getBoundingClientRect().height);
    const [plain, high] = [await height(2), await height(3)];
    assert.ok(high > 1.5 * plain, `the bracket of fractions has ${high} pixels, of a letter ${plain}`);
    await close(page);
  },

  async 'each block has the direction of its text'() {
    proxy.script = [says('שלום עולם\n\n- אחד\n- שתיים\n\nHello `מ`\n')];
    const page = await open();
    await page.fill('#message', 'مرحبا');
    assert.equal(await page.locator('#message').evaluate((field) => getComputedStyle(field).direction), 'rtl');
    await ask(page, 'مرحبا');
    const directions = (at) => page.locator(at).evaluateAll((found) => found.map((element) => getComputedStyle(element).direction));
    assert.deepEqual(await directions('.said, .chat-title'), ['rtl', 'rtl']);
    assert.deepEqual(await directions('.turn.model > .prose > *'), ['rtl', 'rtl', 'ltr']);
    assert.deepEqual(await directions('.prose code'), ['ltr']);
    await close(page);
  },

  async 'footnotes lead to their notes and back'() {
    const notes = '[^1]: The *first*\n    of two lines.\n\n[^long-name]: Second.\n[^left]: Nobody refers to it.\n';
    proxy.script = [says(`One[^long-name], two[^1], again[^long-name], none[^none], \`code[^1]\`.\n\n${notes}\nEnd.`)];
    const page = await open();
    await ask(page, 'Go');
    const prose = page.locator('.turn.model > .prose');
    assert.deepEqual(await prose.locator('.note-reference').allTextContents(), ['1', '2', '1']);
    assert.deepEqual(await prose.locator('.notes > li').allTextContents(), ['Second. ↩\n', 'The first\nof two lines. ↩\n', 'Nobody refers to it.\n']);
    assert.match(await prose.locator('p').first().textContent(), /none\[\^none\], code\[\^1\]\.$/);
    assert.equal(await prose.locator('.notes em').textContent(), 'first');
    await accessible(page, 'footnotes');
    await prose.locator('.note-reference button').nth(1).click();
    assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), 'The first\nof two lines. ↩');
    await page.locator('.notes li').nth(1).locator('.note-back').click();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), '2');
    assert.match(page.url(), /#\/chat\//, 'notes have no address of their own');
    await close(page);
  },

  async 'details are folded, and stay as the reader left them'() {
    const inner = 'Some **bold**.\n\n```html\n</details>\n```\n\n<details open>\n<summary>Inner</summary>\n\n- item\n\n</details>\n';
    proxy.script = [says(`Before\n<details><summary>The *steps*</summary>\n\n${inner}\n</details>\n\nAfter\n\n${'more words '.repeat(40)}`)];
    proxy.pause = 15;
    const page = await open();
    await page.fill('#message', 'Go');
    await page.keyboard.press('Enter');
    const outer = page.locator('.turn.model > .prose > details');
    await outer.locator('summary em').click();
    await complete(page);
    assert.deepEqual(await outer.evaluate((details) => [details.open, details.querySelector('details').open]), [true, true]);
    assert.equal(await outer.locator(':scope > summary').textContent(), 'The steps');
    assert.equal(await outer.locator('details li').textContent(), 'item');
    assert.equal((await outer.locator('pre').textContent()).trim(), '</details>');
    assert.deepEqual(await page.locator('.turn.model > .prose > p').evaluateAll((found) => found.map(({ textContent }) => textContent.slice(0, 6))), ['Before', 'After', 'more w']);
    await accessible(page, 'details');
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
    assert.match(await page.textContent('.failure'), /The server stopped in the middle of the answer/);
    assert.match(await page.textContent('.turn.model > .prose'), /^one two/);
    // The browser logs the broken connection.
    page.faults = page.faults.filter((fault) => !fault.includes('ERR_INCOMPLETE_CHUNKED_ENCODING'));
    await close(page);
  },

  async 'files can be dropped anywhere, and each that is refused is named'() {
    const page = await open();
    const drop = (at, ...files) => page.evaluate(([at, files]) => {
      const transfer = new DataTransfer();
      for (const [name, bytes] of files) transfer.items.add(new File([new Uint8Array(bytes)], name));
      const send = (type) => {
        const event = new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: transfer });
        document.querySelector(at).dispatchEvent(event);
        return event.defaultPrevented;
      };
      const over = send('dragover');
      const isShown = document.querySelector('#composer').classList.contains('takes');
      return [over, isShown, send('drop'), document.querySelector('#composer').classList.contains('takes')];
    }, [at, files]);
    assert.deepEqual(await drop('.side', ['a.txt', [97]]), [true, true, true, false]);
    await page.waitForSelector('#files li');
    await drop('#scroll', ['a.bin', [0, 1]], ['b.txt', [98]], ['c.bin', [255]]);
    await page.waitForFunction(() => document.querySelectorAll('#files li').length === 2);
    const hint = await page.textContent('#hint');
    assert.match(hint, /a\.bin is not a text in UTF-8\. c\.bin is not a text/);
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

  async 'the text of a PDF is attached, and one without text is refused in words'() {
    proxy.script = [says('ok')];
    const writer = await (await browser.newContext()).newPage();
    const pdf = async (html) => { await writer.setContent(html); return writer.pdf(); };
    const page_ = '<p style="break-after:page">';
    const good = await pdf(`<h1>Mühlen &amp; Brot</h1>${page_}First <b>page</b>, fi and ffl: file, baffle.</p><p>Вторая страница</p>`);
    const scanned = await pdf('<svg width="100" height="100"><rect width="90" height="90" fill="red"/></svg>');
    const zeros = `<${'00'.repeat(32)}>`;
    const locked = `%PDF-1.4\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n2 0 obj\n<</Type/Pages/Kids[]/Count 0>>\nendobj\n3 0 obj\n<</Filter/Standard/V 1/R 2/O ${zeros}/U ${zeros}/P -4>>\nendobj\ntrailer\n<</Root 1 0 R/Encrypt 3 0 R/ID[<00><00>]>>\n%%EOF`;
    await writer.context().close();
    const file = (name, buffer, mimeType = 'application/pdf') => ({ name, mimeType, buffer: Buffer.from(buffer) });
    const page = await open();
    const loads = [];
    page.on('request', (request) => loads.push(new URL(request.url()).pathname));
    await page.setInputFiles('#file', [file('a.txt', 'text', 'text/plain')]);
    await page.waitForSelector('#files li');
    assert.deepEqual(loads, [], 'the reader is loaded for the first PDF only');
    await page.setInputFiles('#file', [file('good.pdf', good), file('b.PDF', good, ''), file('scanned.pdf', scanned), file('locked.pdf', locked), file('broken.pdf', '%PDF-1.4 nothing')]);
    await page.waitForFunction(() => document.querySelector('#hint').dataset.kind === 'fault');
    const hint = await page.textContent('#hint');
    assert.match(hint, /^scanned\.pdf is without text: its pages may be scanned.*OCR\) first\. locked\.pdf is protected by a password; save it without one first\. broken\.pdf is no PDF that can be read: .*\.$/);
    assert.deepEqual(await page.locator('#files li span').allTextContents().then((found) => found.map((text) => text.split(' · ')[0])), ['a.txt', 'good.pdf', 'b.PDF']);
    assert.ok(loads.includes('/page/vendor/pdf.worker.min.js'), 'a worker reads it');
    const short = await page.evaluate(async (bytes) => {
      const { textOf } = await import(new URL('page/pdf.js', document.baseURI));
      return textOf(new File([new Uint8Array(bytes)], 'long.pdf'), 20, () => {}).catch(({ message }) => message);
    }, [...good]);
    assert.match(short, /^too long: at most 20 characters/);
    await ask(page, 'Read it');
    const { content } = proxy.asked.at(-1).messages.at(-1);
    assert.match(content, /good\.pdf:\n```\nMühlen & Brot\nFirst page, fi and ffl: file, baffle\.\n\nВторая страница\n```/);
    await close(page);
  },
};
