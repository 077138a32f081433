// Requests to this server, with the key if it asks for one.

import { askKey, key } from './keys.js';

/** A refusal of the server. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** A reply with status 200. Asks the user for a key where the server wants one. */
export async function ask(path, { body, signal } = {}) {
  for (;;) {
    const headers = {};
    if (key()) headers.authorization = `Bearer ${key()}`;
    if (body) headers['content-type'] = 'application/json';
    const options = { method: body ? 'POST' : 'GET', headers, signal, body: body && JSON.stringify(body) };
    const reply = await fetch(new URL(path, document.baseURI), options).catch(unreachable);
    if (reply.ok) return reply;
    const message = await said(reply);
    if (reply.status !== 401) throw new Refusal(reply.status, message);
    if (!await askKey(message)) throw new Refusal(401, message);
  }
}

/** What browsers say of a connection that fails is no help. */
function unreachable(error) {
  if (error.name === 'AbortError') throw error;
  throw new Error('The server does not answer. Is it still running? Then ask again.');
}

async function said(reply) {
  const text = await reply.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text || `status ${reply.status}`;
  }
}

function broken(error) {
  if (error.name === 'AbortError') throw error;
  throw new Error('The server stopped in the middle of the answer. Start it, then ask again.');
}

/** The JSON of server-sent events, until `[DONE]`. */
export async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(broken);
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
