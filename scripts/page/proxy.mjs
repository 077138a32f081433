// A server before the server: what it has no script for goes on to gristmill.

import http from 'node:http';

const read = async (request) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
};

/** Replies of `script`, one for each request for a completion: lists of events, whose connection may break after `breaks`. */
export class Proxy {
  constructor(target) {
    Object.assign(this, { target: new URL(target), script: [], asked: [], facts: null, pause: 0 });
    this.server = http.createServer((request, reply) => this.serve(request, reply).catch((error) => reply.destroy(error)));
  }

  async listen() {
    await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${this.server.address().port}/`;
    return this;
  }

  close() {
    this.server.close();
    this.server.closeAllConnections();
  }

  async serve(request, reply) {
    const body = await read(request);
    const completes = request.method === 'POST' && /^\/v1\/(chat\/)?completions$/.test(request.url);
    if (completes) this.asked.push(JSON.parse(body));
    if (completes && this.script.length > 0) return this.play(this.script.shift(), reply);
    if (request.url === '/model' && this.facts) {
      reply.setHeader('content-type', 'application/json');
      return reply.end(JSON.stringify(this.facts));
    }
    this.pass(request, body, reply);
  }

  async play(events, reply) {
    reply.setHeader('content-type', 'text/event-stream');
    for (const [index, event] of events.entries()) {
      if (index === events.breaks) return reply.destroy();
      if (this.pause) await new Promise((resolve) => setTimeout(resolve, this.pause));
      if (reply.destroyed) return;
      reply.write(`data: ${JSON.stringify(event)}\n\n`);
    }
    reply.end('data: [DONE]\n\n');
  }

  pass(request, body, reply) {
    const { hostname: host, port } = this.target;
    const { method, url: path, headers } = request;
    const onward = http.request({ host, port, method, path, headers }, (answer) => {
      reply.writeHead(answer.statusCode, answer.headers);
      answer.pipe(reply);
    });
    onward.on('error', (error) => reply.destroy(error));
    onward.end(body);
  }
}

const choice = (delta, finish = null) => ({ choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }] });
const usage = { prompt_tokens: 100, completion_tokens: 20, total_tokens: 120,
  gristmill: { choices: [{ reused_tokens: 60, prefill_ms: 100, decode_ms: 500, queue_ms: 0 }] } };

/** The events of a reply with this text. */
export const says = (text, more = {}) => [choice({ role: 'assistant', content: '' }),
  ...(more.reasoning ? [choice({ reasoning_content: more.reasoning })] : []),
  ...(text.match(/[^]{1,7}/g) ?? []).map((content) => choice({ content })),
  ...(more.calls ? [choice({ tool_calls: more.calls })] : []),
  choice({}, more.calls ? 'tool_calls' : 'stop'), { choices: [], usage }];
