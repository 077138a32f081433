// Images in the composer, in a conversation, and in what is sent.

import assert from 'node:assert/strict';
import zlib from 'node:zlib';
import { accessible, ask, close, open, proxy, ready } from './harness.mjs';
import { says } from './proxy.mjs';

/** A PNG of one colour. */
function png(width, height) {
  const crc = (bytes) => zlib.crc32(bytes);
  const chunk = (kind, data) => {
    const body = Buffer.concat([Buffer.from(kind), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc(body));
    return Buffer.concat([length, body, sum]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const rows = Buffer.concat(Array.from({ length: height }, () => Buffer.concat([Buffer.from([0]), Buffer.alloc(width * 3, 99)])));
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([signature, chunk('IHDR', header), chunk('IDAT', zlib.deflateSync(rows)), chunk('IEND', Buffer.alloc(0))]);
}

const file = (name, width, height) => ({ name, mimeType: 'image/png', buffer: png(width, height) });

/** Width and height of the image of a `data:` URL. */
const sizeOf = (page, url) => page.evaluate(async (url) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  return [image.naturalWidth, image.naturalHeight];
}, url);

export const tests = {
  async 'images are attached, sent as parts, and kept'() {
    proxy.facts.images = true;
    proxy.script = [says('grey'), says('still grey')];
    const page = await open();
    await page.setInputFiles('#file', [file('small.png', 40, 30), file('large.png', 3000, 1000)]);
    await page.waitForSelector('#files li:nth-child(2) img.thumbnail');
    await accessible(page, 'the composer');
    await ask(page, 'What colour?');
    const [small, large, words] = proxy.asked.at(-1).messages.at(-1).content;
    assert.equal(words.text, 'What colour?');
    assert.equal(small.image_url.url, `data:image/png;base64,${png(40, 30).toString('base64')}`);
    assert.ok(large.image_url.url.startsWith('data:image/jpeg;base64,'));
    assert.deepEqual(await sizeOf(page, large.image_url.url), [2048, 683]);
    assert.equal(await page.locator('.turn.user img.attached').count(), 2);
    // They are still there when the page is loaded again, and are sent with the next message.
    await page.reload();
    await ready(page);
    assert.equal(await page.locator('.turn.user img.attached').count(), 2);
    await ask(page, 'And now?', 2);
    assert.equal(proxy.asked.at(-1).messages[0].content.length, 3);
    assert.equal(proxy.asked.at(-1).messages.at(-1).content, 'And now?');
    await close(page);
  },

  async 'an image is pasted'() {
    proxy.facts.images = true;
    const page = await open();
    await page.evaluate((base) => {
      const bytes = Uint8Array.from(atob(base), (c) => c.charCodeAt(0));
      const data = new DataTransfer();
      data.items.add(new File([bytes], 'pasted.png', { type: 'image/png' }));
      document.querySelector('#message').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }));
    }, png(8, 8).toString('base64'));
    await page.waitForSelector('#files img.thumbnail[alt="pasted.png"]');
    await close(page);
  },

  async 'a model without a tower takes no image, and a damaged one is said'() {
    const page = await open();
    await page.setInputFiles('#file', file('a.png', 8, 8));
    await page.waitForFunction(() => document.querySelector('#hint').textContent.includes('this model reads none'));
    assert.equal(await page.locator('#files li').count(), 0);
    await close(page);
    proxy.facts.images = true;
    const seeing = await open();
    await seeing.setInputFiles('#file', { name: 'b.png', mimeType: 'image/png', buffer: Buffer.from('no image') });
    await seeing.waitForFunction(() => document.querySelector('#hint').textContent.includes('no image that this browser can read'));
    await close(seeing);
  },
};
