// Sizes, themes, and the screenshots of the docs.

import assert from 'node:assert/strict';
import { accessible, ask, close, complete, docs, drawn, facts, noSideways, open, PHONE, proxy, ready, TOUCHED } from './harness.mjs';
import { says } from './proxy.mjs';

export const tests = {
  async '360 pixels have no sideways scroll'() {
    for (const colorScheme of ['light', 'dark']) {
      proxy.script = [says(`${'x'.repeat(400)}\n\n\`\`\`js\n${'y'.repeat(300)}\n\`\`\`\n\n| a | b |\n| - | - |\n| ${'z'.repeat(200)} | c |\n`)];
      const page = await open(proxy.url, { viewport: PHONE, colorScheme, settings: { max_tokens: '30' } });
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
      await page.goto(proxy.url);
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

  async 'the empty page invites, with what the model can do'() {
    const page = await open(proxy.url, { settings: { max_tokens: '20' } });
    assert.equal(await page.textContent('.blank h2'), 'Start a story');
    assert.equal(await page.isVisible('.facts-list'), false);
    await page.click('.about summary');
    assert.match(await page.textContent('.facts-list'), /Experts16 in each of 4 layers, 4 for each token/);
    const text = await page.textContent('.example >> nth=1 >> span >> nth=1');
    await page.click('.example >> nth=1');
    await complete(page);
    assert.equal(proxy.asked.at(-1).prompt, text);
    await close(page);
    proxy.facts = { ...facts, chat_template: true };
    const other = await open();
    assert.match(await other.textContent('.blank'), /What would you like to know\?.*palindrome/);
    await close(other);
  },

  async 'a phone can be used with a finger'() {
    proxy.script = [says('ok', { finish: 'length' })];
    const page = await open(proxy.url, TOUCHED);
    /** Controls in sight that are smaller than 24 by 36 pixels. */
    const small = (within) => page.evaluate((within) => [...document.querySelectorAll(`${within} :is(button, select, input:not([type=radio], [type=checkbox]), textarea)`)]
      .map((element) => [element.textContent || element.name, element.getBoundingClientRect()])
      .filter(([, { width, height }]) => width > 0 && (width < 24 || height < 36)).map(([name, { width, height }]) => `${name}: ${width} × ${height}`), within);
    await noSideways(page, 'at the start');
    await page.tap('#settings-open');
    await noSideways(page, 'settings');
    assert.deepEqual(await small('#settings'), []);
    // The buttons of a dialog are in sight, and no field is under them once it has the focus.
    const box = await page.locator('#settings >> text="Save"').boundingBox();
    assert.ok(box.y + box.height <= PHONE.height, `Save ends at ${box.y + box.height}`);
    await page.tap('#settings >> text="Cancel"');
    await page.tap('.setup-line button');
    await noSideways(page, 'settings of a conversation');
    assert.deepEqual(await small('#setup'), []);
    await accessible(page, 'settings of a conversation');
    await page.tap('#setup >> text="Cancel"');
    await page.fill('#message', 'Go');
    await page.tap('#send');
    await complete(page);
    assert.deepEqual(await small('main'), []);
    await page.tap('#side-open');
    await page.tap('.more');
    await noSideways(page, 'the actions of a conversation');
    assert.deepEqual(await small('#side'), []);
    await accessible(page, 'the actions of a conversation');
    await close(page);
  },

  async 'screenshots'() {
    for (const [colorScheme, name] of [['light', 'page.png'], ['dark', 'page-dark.png']]) {
      const page = await open(proxy.url, { colorScheme, settings: { seed: '7', temperature: '0.6', max_tokens: '170' } });
      await accessible(page, `the model, ${colorScheme}`);
      await page.click('#experts-open');
      await ask(page, 'A little fox found a red umbrella in the forest. She');
      await page.click('#new');
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

/** Tests of the built-in model as it is. */
export const plain = ['the empty page invites, with what the model can do', 'screenshots'];
