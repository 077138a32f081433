// Tools of MCP servers: a published server, and one that replies as that one does not.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import http from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { accessible, ask, close, complete, noSideways, open, PHONE, proxy, ready } from './harness.mjs';
import { says } from './proxy.mjs';

/** Ports that `gristmill serve` was started with by `--allow-mcp`: of the published server, and of the other. */
const [port, otherPort] = (process.env.MCP_PORTS ?? '').split(',');
const url = `http://127.0.0.1:${port}/mcp`;
const otherUrl = `http://127.0.0.1:${otherPort}/mcp`;
const asks = [`http://127.0.0.1:${port}/`, `http://127.0.0.1:${otherPort}/`];

/** Runs `test` while the published server does, which it can stop. */
async function withServer(test) {
  // The package exports no file.
  const [folder] = createRequire(import.meta.url).resolve.paths('@modelcontextprotocol/server-everything');
  const main = path.join(folder, '@modelcontextprotocol/server-everything/dist/index.js');
  const server = spawn(process.execPath, [main, 'streamableHttp'], { env: { ...process.env, PORT: port } });
  const stop = () => new Promise((done) => { if (server.exitCode !== null || !server.kill()) done(); else server.once('exit', done); });
  try {
    await new Promise((done, fail) => {
      const listens = (text) => { if (`${text}`.includes('listening')) done(); };
      server.stdout.on('data', listens);
      server.stderr.on('data', listens);
      server.once('exit', () => fail(new Error('the MCP server has ended')));
    });
    await test(stop);
  } finally {
    await stop();
  }
}

const call = (name, given, id = 'call_1') => ({ index: 0, id, type: 'function', function: { name, arguments: JSON.stringify(given) } });
const calls = (...args) => says('', { calls: [call(...args)] });
const last = () => proxy.asked.at(-1);
const forgive = (page) => { page.faults = page.faults.filter((fault) => !/Failed to load resource|blocked by CORS/.test(fault)); };

async function add(page, address) {
  await page.click('#settings-open');
  await page.fill('#set-mcp-url', address);
  await page.click('.add-server >> text="Add"');
}

const said = async (page) => {
  await page.waitForSelector('.mcp > [role=alert]:not([hidden])');
  return page.textContent('.mcp > [role=alert]');
};

export const tests = {
  async 'a tool of a published MCP server is called once, refused, and always'() {
    await withServer(async () => {
      proxy.script = [calls('echo', { message: 'hi' }), says('It says hi.'), calls('get-sum', { a: 2, b: 3 }, 'call_2'), says('Well.'),
        calls('get-sum', { a: 2, b: 3 }, 'call_3'), says('Five.'), calls('get-sum', { a: 4, b: 3 }, 'call_4'), says('Seven.'), calls('get-sum', { a: 1, b: 1 }, 'call_5'), says('Two.')];
      const page = await open(proxy.url, { asks });
      await add(page, 'http://127.0.0.1:9/mcp');
      assert.match(await said(page), /not added: the page may not ask it yet; start gristmill serve with --allow-mcp http:\/\/127\.0\.0\.1:9\.$/);
      await page.fill('#set-mcp-url', url);
      await page.keyboard.press('Enter');
      await page.waitForSelector('.servers li');
      assert.match(await page.textContent('.servers li'), /http:\/\/127.*\d+ tools/);
      await accessible(page, 'MCP servers');
      await page.click('#settings >> text="Save"');

      await page.fill('#message', 'Echo');
      await page.keyboard.press('Enter');
      await page.waitForSelector('text="May this call run?"');
      const echo = last().tools.find(({ function: { name } }) => name === 'echo');
      assert.deepEqual([echo.type, echo.function.parameters.properties.message.type], ['function', 'string']);
      assert.ok(echo.function.description.length > 0);
      assert.match(await page.textContent('.call'), /echo.*"message": "hi"/s);
      await accessible(page, 'a question');
      assert.equal(await page.locator('.turn.tool').count(), 0);
      await page.click('text="Allow once"');
      await page.waitForSelector('text=It says hi.');
      assert.deepEqual([last().messages.at(-1).tool_call_id, last().messages.at(-1).content], ['call_1', 'Echo: hi']);

      await page.fill('#message', 'Sum');
      await page.keyboard.press('Enter');
      await page.click('text="Refuse"');
      await page.waitForSelector('text=Well.');
      assert.equal(last().messages.at(-1).content, 'The user does not allow this call.');

      await page.fill('#message', 'Again');
      await page.keyboard.press('Enter');
      await page.click('text="Always allow get-sum"');
      await page.waitForSelector('text=Five.');
      assert.match(last().messages.at(-1).content, /2.*3.*5/);
      await page.reload();
      await ready(page);
      await page.fill('#message', 'Without a question');
      await page.keyboard.press('Enter');
      await page.waitForSelector('text=Seven.');
      assert.match(last().messages.at(-1).content, /4.*3.*7/);

      await page.click('#settings-open');
      await page.click('.servers summary');
      await page.uncheck('.server-tools li:has-text("get-sum") input');
      await page.keyboard.press('Escape');
      await page.fill('#message', 'Asked again');
      await page.keyboard.press('Enter');
      await page.waitForSelector('text="May this call run?"');
      await close(page);
    });
  },

  async 'a call is stopped, a restarted server gets a new session, and one that is away is named'() {
    const page = await open(proxy.url, { viewport: PHONE, asks });
    await withServer(async () => {
      proxy.script = [calls('trigger-long-running-operation', { duration: 60, steps: 2 }), says('Too long.')];
      await add(page, url);
      await page.waitForSelector('.servers li');
      await noSideways(page, 'MCP servers');
      await page.keyboard.press('Escape');
      await page.fill('#message', 'Wait');
      await page.keyboard.press('Enter');
      await page.waitForSelector('text="May this call run?"');
      await noSideways(page, 'a question');
      await page.click('text="Allow once"');
      await page.click('.call >> text="Stop"');
      await page.waitForSelector('text=the call was stopped');
      await page.click('text="Go on without it"');
      await page.waitForSelector('text=Too long.');
      assert.equal(last().messages.at(-1).content, 'The call failed: the call was stopped.');
    });
    await withServer(async (stop) => {
      proxy.script = [calls('echo', { message: 'again' }), says('Back.'), calls('echo', { message: 'gone' }), says('Without.'), says('No tools.')];
      await page.fill('#message', 'Again');
      await page.keyboard.press('Enter');
      await page.click('text="Allow once"');
      await page.waitForSelector('text=Back.');
      assert.equal(last().messages.at(-1).content, 'Echo: again');
      await page.fill('#message', 'Gone');
      await page.keyboard.press('Enter');
      await page.waitForSelector('text="May this call run?"');
      await stop();
      await page.click('text="Allow once"');
      await page.waitForSelector('.call-question.error');
      assert.match(await page.textContent('.call-question.error'), /did not answer the call: it does not answer/);
      await page.click('text="Go on without it"');
      await page.waitForSelector('text=Without.');
      await page.reload();
      await ready(page);
      await page.fill('#message', 'And now?');
      await page.keyboard.press('Enter');
      await page.waitForSelector('text=No tools.');
      await page.waitForFunction(() => document.querySelector('#hint').textContent.startsWith('Without the tools of 127.0.0.1'));
      assert.equal('tools' in last(), false);
    });
    forgive(page);
    await close(page);
  },

  async 'a server may reply in JSON, in pages, ask the page, and break a stream'() {
    const heard = [];
    const tool = (name) => ({ name, inputSchema: { type: 'object' } });
    const replies = {
      initialize: () => ({ protocolVersion: '2025-03-26', capabilities: { tools: {} }, serverInfo: { name: '<img src=x onerror=window.hit=1>' } }),
      'tools/list': ({ cursor }) => (cursor ? { tools: [tool('a b'), { name: 5 }] } : { tools: [tool('a b'), tool('slow')], nextCursor: '2' }),
    };
    const cors = { 'access-control-allow-origin': '*', 'access-control-allow-headers': '*, authorization' };
    const event = (id, message) => `id: ${id}\r\ndata: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\r\n\r\n`;
    let slow = null;
    const server = http.createServer(async (request, reply) => {
      if (request.method === 'OPTIONS') return reply.writeHead(204, cors).end();
      if (request.url === '/closed') return reply.writeHead(200, { 'content-type': 'application/json' }).end('{}');
      const parts = [];
      for await (const part of request) parts.push(part);
      const message = parts.length > 0 ? JSON.parse(Buffer.concat(parts)) : null;
      heard.push([request.method, message?.method ?? (message ? 'answer' : null), request.headers.authorization]);
      if (request.method === 'GET') {
        assert.equal(request.headers['last-event-id'], 'x2');
        reply.writeHead(200, { ...cors, 'content-type': 'text/event-stream' });
        return reply.end(event('x3', { id: slow, result: { content: [{ type: 'image', data: 'AAAA', mimeType: 'image/png' }, { type: 'text', text: 'done' }] } }));
      }
      if (message.id === undefined || !message.method) return reply.writeHead(202, cors).end();
      if (message.method === 'tools/call') {
        slow = message.id;
        reply.writeHead(200, { ...cors, 'content-type': 'text/event-stream' });
        return reply.end(event('x1', { id: 99, method: 'ping' }) + event('x2', { method: 'notifications/progress' }));
      }
      reply.writeHead(200, { ...cors, 'content-type': 'application/json' });
      reply.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result: replies[message.method](message.params) }));
    });
    await new Promise((done) => { server.listen(Number(otherPort), '127.0.0.1', done); });
    try {
      proxy.script = [says('', { calls: [call('a_b_2', {}), call('unknown', {}, 'call_2')] }), says('Both.')];
      const page = await open(proxy.url, { asks });
      await add(page, otherUrl.replace('/mcp', '/closed'));
      assert.match(await said(page), /does not allow requests of this page \(CORS\)/);
      await page.fill('#set-mcp-url', 'localhost');
      await page.click('.add-server >> text="Add"');
      await page.waitForFunction(() => document.querySelector('.mcp > [role=alert]').textContent.includes('this is no address'));
      await page.fill('#set-mcp-url', otherUrl);
      await page.fill('#set-mcp-key', 'of the server');
      await page.click('.add-server >> text="Add"');
      await page.waitForSelector('.servers li');
      assert.match(await page.textContent('.servers li'), /<img src=x.*3 tools/s);
      await page.keyboard.press('Escape');
      await page.fill('#message', 'Go');
      await page.keyboard.press('Enter');
      await page.waitForSelector('text="May this call run?"');
      assert.deepEqual(last().tools.map(({ function: { name } }) => name), ['a_b', 'slow', 'a_b_2']);
      await page.click('text="Allow once"');
      // Of a tool that no server has, the user gives the result.
      await page.fill('.call textarea', 'by hand');
      await page.waitForFunction(() => document.querySelectorAll('.call-choice').length === 0);
      await page.click('text="Send the result"');
      await page.waitForSelector('text=Both.');
      assert.deepEqual(last().messages.slice(-2).map(({ content }) => content), ['[image: image/png, 4 characters in base64]\ndone', 'by hand']);
      assert.deepEqual(heard.filter(([, method]) => method === 'answer').length, 1, 'a ping is answered');
      assert.ok(heard.filter(([method]) => method === 'GET').length === 1 && heard.every(([, , key]) => key === 'Bearer of the server'));
      assert.equal(await page.evaluate(() => window.hit), undefined);
      heard.length = 0;
      await page.evaluate(async () => {
        const tools = await import(new URL('page/tools.js', document.baseURI));
        for (const server of tools.all()) server.tools = null;
        await Promise.all([tools.connected(), tools.connected()]);
      });
      assert.equal(heard.filter(([, method]) => method === 'initialize').length, 1, 'one session');
      await page.click('#settings-open');
      await page.click('.servers >> text="Remove"');
      assert.equal(await page.locator('.servers li').count(), 0);
      assert.equal(await page.evaluate(() => localStorage['gristmill-mcp']), '[]');
      await page.keyboard.press('Escape');
      forgive(page);
      await close(page);
    } finally {
      server.close();
      server.closeAllConnections();
    }
  },
};
