// A server before the server: what it has no script for goes on to gristmill.

import http from 'node:http';

const read = async (request) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
};

/**
 * Replies of `script`, one for each request for a completion: lists of events, whose connection may break after `breaks`, or
 * refusals. `replies` are of other paths, functions of the request's body that may wait.
 */
export class Proxy {
  constructor(target) {
    this.target = new URL(target);
    this.asked = [];
    this.reset(null);
    this.server = http.createServer((request, reply) => this.serve(request, reply).catch((error) => reply.destroy(error)));
  }

  /** Before each test; `facts` are those of `/model`, if they are not the server's. */
  reset(facts) {
    Object.assign(this, { script: [], replies: {}, facts, pause: 0, down: false });
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
    if (this.down) return reply.destroy();
    const completes = request.method === 'POST' && /^\/v1\/(chat\/)?completions$/.test(request.url);
    if (completes) this.asked.push(JSON.parse(body));
    if (completes && this.script.length > 0) return this.play(this.script.shift(), reply);
    if (request.url === '/model' && this.facts) return send(reply, 200, JSON.stringify(this.facts));
    if (this.replies[request.url]) return send(reply, 200, await this.replies[request.url](body));
    this.pass(request, body, reply);
  }

  async play(events, reply) {
    if (events.status) return send(reply, events.status, JSON.stringify({ error: events.error }), events.headers);
    if (events.wait) await events.wait;
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

function send(reply, status, body, headers = {}) {
  reply.writeHead(status, { 'content-type': 'application/json', ...headers });
  reply.end(body);
}

/** A refusal, as the server writes it. */
export const refuses = (status, message, { code = null, param = null, headers } = {}) =>
  ({ status, headers, error: { message, type: 'invalid_request_error', param, code } });

const choice = (delta, finish = null) => ({ choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }] });
const usage = { prompt_tokens: 100, completion_tokens: 20, total_tokens: 120,
  gristmill: { choices: [{ reused_tokens: 60, prefill_ms: 100, decode_ms: 500, queue_ms: 0 }] } };

/** The events of a reply with this text. `more` may have `reasoning`, `calls`, how it ends, and the experts of each token. */
export const says = (text, more = {}) => [choice({ role: 'assistant', content: '' }),
  ...(more.reasoning ? [choice({ reasoning_content: more.reasoning })] : []),
  ...(text.match(/[^]{1,7}/g) ?? []).map((content, index) => {
    const event = choice({ content });
    if (more.experts) event.choices[0].gristmill = { tokens: [{ id: index, text: content, experts: more.experts(index) }] };
    return event;
  }),
  ...(more.calls ? [choice({ tool_calls: more.calls })] : []),
  choice({}, more.finish ?? (more.calls ? 'tool_calls' : 'stop')), { choices: [], usage }];
