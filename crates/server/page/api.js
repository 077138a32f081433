// Requests to this server, with the key if it asks for one.

import { askKey, key } from './keys.js';

/** A refusal of the server, with its code and the field that it is about, if it names them. */
export class Refusal extends Error {
  constructor(status, { message, code = null, param = null }, wait = null) {
    super(message);
    Object.assign(this, { status, code, param, wait });
  }
}

/** The connection failed; `midway` if the answer had begun. */
export class Unreachable extends Error {
  constructor(midway) {
    super('the connection failed');
    this.midway = midway;
  }
}

/** A reply with status 200. Asks the user for a key where the server wants one. */
export async function ask(path, { body, signal } = {}) {
  for (;;) {
    const headers = {};
    if (key()) headers.authorization = `Bearer ${key()}`;
    if (body) headers['content-type'] = 'application/json';
    const options = { method: body ? 'POST' : 'GET', headers, signal, body: body && JSON.stringify(body) };
    const reply = await fetch(new URL(path, document.baseURI), options).catch(unreachable(false));
    if (reply.ok) return reply;
    const error = await said(reply);
    if (reply.status !== 401) throw new Refusal(reply.status, error, reply.headers.get('retry-after'));
    if (!await askKey(error.message)) throw new Refusal(401, error);
  }
}

/** What browsers say of a connection that fails is no help. */
const unreachable = (midway) => (error) => {
  throw error.name === 'AbortError' ? error : new Unreachable(midway);
};

async function said(reply) {
  const text = await reply.text().catch(() => '');
  try {
    const { message, code, param } = JSON.parse(text).error;
    return { message: String(message), code, param };
  } catch {
    return { message: text.slice(0, 500) || `status ${reply.status}` };
  }
}

/** The JSON of server-sent events, until `[DONE]`. */
export async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(unreachable(true));
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith('data: ')) continue;
        const data = line.slice(6).trimEnd();
        if (data === '[DONE]') return;
        yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
