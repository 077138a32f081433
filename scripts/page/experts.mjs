// The map of experts.

import assert from 'node:assert/strict';
import { accessible, ask, close, complete, drawn, facts, open, proxy } from './harness.mjs';
import { says } from './proxy.mjs';

/** Stories of the built-in model are cut, so that the tests do not wait for them. */
const SHORT = { settings: { max_tokens: '40' } };

export const tests = {
  async 'the model continues a text and its experts are shown'() {
    const page = await open(proxy.url, SHORT);
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
    const page = await open(proxy.url, SHORT);
    await ask(page, 'Once');
    const traced = () => 'experts' in proxy.asked.at(-1) || 'logprobs' in proxy.asked.at(-1);
    assert.equal(traced(), false);
    await page.click('#experts-open');
    await page.uncheck('#experts-record');
    await ask(page, 'Once', 2);
    assert.equal(traced(), false);
    await page.check('#experts-record');
    await page.click('.experts-head >> text=Close');
    await ask(page, 'Once', 3);
    assert.equal(traced(), true);
    await page.click('.turn.model:last-child .foot >> text="Experts"');
    await drawn(page);
    assert.ok(await page.locator('.token').count() > 5);
    await close(page);
  },

  async 'keys move in the map and in the tokens'() {
    const page = await open(proxy.url, SHORT);
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

  async 'an expert has its words'() {
    proxy.script = [says('the mill the river', { experts: (index) => [[[index === 0 ? 3 : 1, 0.75], [2, 0.25]]] })];
    proxy.facts = { ...facts, chat_template: true, layers: 1, experts: [16], experts_per_token: [2] };
    const page = await open();
    await page.click('#experts-open');
    assert.match(await page.textContent('.intro'), /^Experts are small networks .* picks 2 of its 16, and only those work\.$/);
    await ask(page, 'Go');
    await page.focus('.map canvas');
    for (const key of ['ArrowRight', 'ArrowRight', 'Enter']) await page.keyboard.press(key);
    await drawn(page);
    // The tokens are of seven characters.
    assert.match(await page.textContent('#experts-readout'), /^Layer 0, expert 2: 3 of 3 tokens \(100 %\), 8\.0 × an even load, weight 0\.25/);
    assert.deepEqual(await page.locator('.words li').allTextContents(), ['the mil', 'l the r', 'iver']);
    await page.focus('.map canvas');
    for (const key of ['ArrowRight', 'Enter']) await page.keyboard.press(key);
    await drawn(page);
    assert.deepEqual(await page.locator('.words li').allTextContents(), ['the mil']);
    await page.click('.of-expert >> text="Clear"');
    await drawn(page);
    assert.equal(await page.locator('.words').count(), 0);
    await close(page);
  },

  async 'of 48 layers of 128 experts each can be seen, on one scale'() {
    const [layers, experts, perToken] = [48, 128, 8];
    const even = (index) => Array.from({ length: layers }, () => Array.from({ length: perToken }, (_, at) => [(index * perToken + at) % experts, 1 / perToken]));
    // One expert of the first layer is picked for every token.
    const uneven = (index) => even(index).map((row, layer) => (layer === 0 ? [[0, 1 / perToken], ...row.slice(1).map(([expert, weight]) => [Math.max(1, expert), weight])] : row));
    proxy.script = [says('abcdefg'.repeat(16), { experts: even }), says('abcdefg'.repeat(16), { experts: uneven })];
    proxy.facts = { ...facts, chat_template: true, layers, experts: Array(layers).fill(experts), experts_per_token: Array(layers).fill(perToken) };
    const page = await open();
    await page.click('#experts-open');
    await ask(page, 'One');
    const map = await page.evaluate(() => {
      const [canvas, box] = ['.map canvas', '.map-scroll'].map((at) => document.querySelector(at));
      return { width: canvas.getBoundingClientRect().width, height: canvas.getBoundingClientRect().height, box: box.clientWidth, scrolls: box.scrollWidth > box.clientWidth };
    });
    assert.ok(map.width >= 42 + 8 * experts && map.height >= 36 + 8 * layers && map.scrolls, JSON.stringify(map));
    assert.deepEqual(await page.locator('.legend >> nth=0 >> .stop').allTextContents(), ['0', '0.5', '1', '2', '3+']);
    /** The colours of the legend, and of a cell's middle. */
    const colours = (row, expert) => page.evaluate(([row, expert]) => {
      const canvas = document.querySelector('.map canvas');
      const at = [42 + (expert + 0.5) * 8, 36 + (row + 0.5) * (canvas.getBoundingClientRect().height - 38) / 48];
      const cell = [...canvas.getContext('2d').getImageData(...at.map(Math.floor), 1, 1).data].slice(0, 3);
      return [`rgb(${cell.join(', ')})`, ...[...document.querySelectorAll('.legend:first-of-type .swatch')].slice(0, 5).map((swatch) => getComputedStyle(swatch).backgroundColor)];
    }, [row, expert]);
    const [cell, none, , evenly, , most] = await colours(20, 5);
    assert.equal(cell, evenly, 'an even load has the colour of 1');
    await ask(page, 'Two', 2);
    assert.equal((await colours(0, 0))[0], most, 'a load of 16 has the colour of 3 and more');
    assert.deepEqual((await colours(20, 5)).slice(0, 2), [evenly, none], 'the scale is the same for every answer');
    await page.selectOption('#experts-choice-1', { index: 1 });
    await drawn(page);
    assert.equal(await page.locator('.map canvas:visible').count(), 3);
    assert.match(await page.textContent('.most-different li'), /^Layer 0, expert 0\s*16 × in the first, 1\.0 × in the second$/);
    await page.click('.most-different button');
    await drawn(page);
    assert.match(await page.textContent('#experts-readout'), /^Layer 0, expert 0: 16 of 16 tokens.*in the second 1\.0 ×$/);
    await page.click('text="Enlarge"');
    await drawn(page);
    assert.equal(await page.evaluate(() => document.querySelector('.map-scroll').scrollWidth <= document.querySelector('.map-scroll').clientWidth), true, 'all fit in the whole window');
    await accessible(page, 'maps of 128 experts');
    await close(page);
  },
};

/** Tests of the built-in model as it is. */
export const plain = ['the model continues a text and its experts are shown', 'experts are asked for if the user wants them',
  'keys move in the map and in the tokens'];
