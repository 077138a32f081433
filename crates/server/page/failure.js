// Why there is no answer, in words, and what the user can do about it.

import { Refusal, Unreachable } from './api.js';
import { whole } from './numbers.js';

/** What can be done, by the kind of failure: names of buttons, of which `again` is also the first choice. */
export const REMEDIES = {
  offline: ['again'],
  midway: ['continue', 'again'],
  key: ['key'],
  busy: ['again'],
  unavailable: ['again'],
  forbidden: ['again'],
  long: ['begin'],
  large: [],
  plain: ['reload'],
  settings: ['settings'],
  failed: ['continue', 'again'],
};

/** The fields of a request that the settings set. */
const FIELDS = /^(temperature|top_p|top_k|min_p|max_tokens|max_completion_tokens|seed|tools|enable_thinking)\b/;

/** { kind, words, said }: `said` is the server's message, where the words do not have it. */
export function failure(error) {
  if (error instanceof Unreachable) return error.midway ? MIDWAY : OFFLINE;
  if (error instanceof Refusal) return { said: '', ...refused(error) };
  return { kind: error.kind ?? 'failed', words: error.kind ? error.message : `The answer failed: ${error.message}`, said: '' };
}

/** A failure that the page finds itself, before it asks the server. */
export class Fault extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

const OFFLINE = { kind: 'offline', words: 'The server does not answer. It may have stopped: start it, then try again.', said: '' };
const MIDWAY = { kind: 'midway', words: 'The server stopped in the middle of the answer. Start it, then continue or try again.', said: '' };

function refused({ status, code, param, message, wait }) {
  if (code === 'context_length_exceeded') return { kind: 'long', words: tooLong(message), said: message };
  if (/no chat template/.test(message)) {
    return { kind: 'plain', words: 'The server has another model now, which continues texts and takes no messages. Load the page again to use it.', said: message };
  }
  switch (status) {
    case 401: return { kind: 'key', words: 'The server wants a key, and has not been given one that it knows.' };
    case 403: return { kind: 'forbidden', words: 'The server does not let this page ask.', said: message };
    case 413: return { kind: 'large', words: 'The message is larger than the server takes. Edit it, or leave out a file.', said: message };
    case 429: return { kind: 'busy', words: `The server is busy: too many requests wait. Try again ${seconds(wait)}.`, said: message };
    case 503: return { kind: 'unavailable', words: 'The server cannot answer now. If that does not change, start it again.', said: message };
    default:
  }
  if (status >= 500) return { kind: 'failed', words: 'The server failed at this answer.', said: message };
  if (FIELDS.test(param ?? '')) return { kind: 'settings', words: `The server does not take a setting: ${message}` };
  return { kind: 'failed', words: `The server refused the request: ${message}` };
}

const seconds = (wait) => (/^\d{1,4}$/.test(wait ?? '') ? `in ${Math.max(1, wait)} s` : 'in a moment');

/** The numbers are in the server's message. */
function tooLong(message) {
  const [, most] = message.match(/maximum context length is (\d+) tokens/) ?? [];
  const [, has] = message.match(/has (?:at least )?(\d+) tokens/) ?? [];
  const numbers = most && has ? `: it has ${whole(Number(has))} tokens, and the model can read ${whole(Number(most))}` : '';
  return `The conversation is too long for the model${numbers}. Start a new one, or edit a message to make it shorter.`;
}
