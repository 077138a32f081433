// Conversations as files: JSON with everything, to be read again, and Markdown of what is shown, for people.

import { fenced, shown, title } from './conversation.js';
import { make } from './dom.js';
import { bytes } from './numbers.js';
import { list, Malformed, object, readConversation, readPreset } from './shape.js';

const FORMAT = 'gristmill-conversations';
const VERSION = 1;
/** Larger files are not read. */
const MOST_BYTES = 64 << 20;
const MOST_CONVERSATIONS = 10_000;
const MOST_PRESETS = 1000;

/** The file of conversations, and of presets if there are any. */
export function toJson(chats, presets = []) {
  const conversations = chats.map(({ revision, ...chat }) => chat);
  return JSON.stringify({ format: FORMAT, version: VERSION, exported: new Date().toISOString(), conversations, presets }, null, 1);
}

/** What a file has: { conversations, presets }. Throws what is wrong with it, in words. */
export async function readFile(file) {
  if (file.size > MOST_BYTES) throw new Malformed(`${file.name} has ${bytes(file.size)}; at most ${bytes(MOST_BYTES)} are read`);
  let value;
  try {
    value = JSON.parse(await file.text());
  } catch (error) {
    throw new Malformed(`${file.name} is not JSON: ${error.message}`);
  }
  return read(value);
}

function read(value) {
  if (value?.format !== FORMAT) throw new Malformed(`the file is not an export of this page: it has no "format": "${FORMAT}"`);
  if (value.version !== VERSION) throw new Malformed(`the file has version ${JSON.stringify(value.version)?.slice(0, 20)}; this page reads version ${VERSION}`);
  const conversations = list(object(value, 'the file').conversations, 'conversations', MOST_CONVERSATIONS)
    .map((chat, index) => readConversation(chat, `conversation ${index + 1}`));
  const presets = list(value.presets ?? [], 'presets', MOST_PRESETS).map((preset, index) => readPreset(preset, `preset ${index + 1}`));
  for (const chat of conversations) Object.assign(chat, { revision: 0, changed: Math.min(chat.changed, Date.now()) });
  return { conversations, presets };
}

/** The turns that are shown. `other` names the model of answers that do not name theirs. */
export function toMarkdown(chat, other) {
  const parts = [`# ${title(chat)}`];
  if (chat.setup.system?.trim()) parts.push(quoted(`System prompt: ${chat.setup.system.trim()}`));
  for (const turn of chat.turns) {
    if (turn.role === 'tool') turn.results.forEach(({ name, content }) => parts.push(`## Result of ${name}`, fenced(content)));
    if (turn.role === 'user') parts.push('## You', ...shown(turn).files.map((file) => (file.image ? `Image: ${file.name}` : `${file.name}:\n\n${fenced(file.text)}`)), shown(turn).text);
    if (turn.role === 'model' && shown(turn)) parts.push(`## ${shown(turn).model || other}`, ...answer(shown(turn)));
  }
  return `${parts.filter(Boolean).join('\n\n')}\n`;
}

const answer = ({ text, reasoning, calls }) => [reasoning && quoted(reasoning), text,
  ...calls.map(({ name, arguments: given }) => `Call of ${name}:\n\n${fenced(given, 'json')}`)];

const quoted = (text) => text.split('\n').map((line) => `> ${line}`).join('\n');

/** Gives the user a file. */
export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = make('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The name of a conversation's file: letters and digits of its title. */
export function fileName(chat, ending) {
  const words = title(chat).normalize('NFKC').replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 60);
  return `${words || 'conversation'}.${ending}`;
}
