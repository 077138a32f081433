// A summary of a conversation, by the model, so that it can go on in a new one before its context is full.

import { messages, newVersion, userTurn } from './conversation.js';
import { generate } from './generate.js';

const ASKED = 'Summarise our conversation so far, so that it can go on without its text. Keep what was asked, what was found '
  + 'and decided, names, numbers, and what is still open. Write the summary only.';

/** { text } or { fault }, in words. `ready` gives the facts of the model; `grown` takes the characters so far. */
export async function summarise({ turns, system, setup, ready, signal, grown }) {
  const version = newVersion();
  const begin = async () => ({ facts: await ready(), trace: null, tools: [] });
  await generate({ begin, messages: messages([...turns, userTurn(ASKED, [])], system), setup, continued: false, version, signal,
    changed: () => grown(version.text.length), progress: () => {} });
  const text = version.text.trim();
  if (version.finish === 'stop' && text) return { text: `This is a summary of our conversation so far:\n\n${text}\n\n` };
  if (version.finish === 'stopped') return { fault: 'The summary was stopped.' };
  return { fault: version.failure?.words ?? 'The model wrote no whole summary. Begin a new conversation instead.' };
}
