// How far the prompt of an answer is read, while its first token is awaited. The server counts the tokens of its steps for
// all requests together, so the count is shown only while this request is alone.

import { ask } from './api.js';
import { whole } from './numbers.js';

/** A short wait needs no words; in milliseconds. */
const AFTER = 700;
const EVERY = 600;

/** Calls `show` with a text and a share (or null) until `signal` is aborted. `prompt` is the body for `/tokenize`. */
export async function watch(prompt, signal, show) {
  try {
    const begin = performance.now();
    const before = await steps(signal);
    await pause(AFTER, signal);
    show({ text: 'Reading the prompt …', share: null });
    const length = count(prompt, signal);
    for (;;) {
      const now = await steps(signal);
      show(state(now, now.tokens - before.tokens, await Promise.race([length, null]), (performance.now() - begin) / 1000));
      await pause(EVERY, signal);
    }
  } catch {
    // Without these numbers the answer comes all the same.
  }
}

function state({ waiting, running }, read, length, seconds) {
  const time = `${Math.round(seconds)} s`;
  if (waiting > 0) return { text: `Waiting for the server: ${whole(waiting)} ${waiting === 1 ? 'request waits' : 'requests wait'} · ${time}`, share: null };
  if (!length) return { text: `Reading the prompt · ${time}`, share: null };
  if (running > 1) return { text: `Reading the prompt of ${whole(length)} tokens, beside ${whole(running - 1)} other ${running === 2 ? 'request' : 'requests'} · ${time}`, share: null };
  const done = Math.min(read, length);
  return { text: `Reading the prompt: ${whole(done)} of ${whole(length)} tokens · ${time}`, share: done / length };
}

/** Figures of `/metrics`: requests, and tokens of all steps so far. */
async function steps(signal) {
  const text = await (await ask('metrics', { signal })).text();
  const figure = (name) => Number(text.match(new RegExp(`^gristmill_${name}(?:\\{[^}]*\\})? ([\\d.e+]+)$`, 'm'))?.[1] ?? 0);
  return { tokens: figure('step_tokens_sum'), waiting: figure('requests_waiting'), running: figure('requests_running') };
}

const count = (prompt, signal) => ask('tokenize', { body: prompt, signal }).then((reply) => reply.json()).then((found) => found.count, () => null);

const pause = (milliseconds, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, milliseconds);
  signal.addEventListener('abort', () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
});
