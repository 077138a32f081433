// Finds conversations by the words of their titles and messages, of all versions.

import { texts, title } from './conversation.js';

/** Characters before and after what was found. */
const AROUND = 32;

/** { chat, turn, snippet } for each conversation that has the words; without words, all of them. */
export function find(chats, words) {
  const wanted = fold(words.trim());
  if (!wanted) return chats.map((chat) => ({ chat }));
  return chats.flatMap((chat) => {
    for (const { turn, text } of texts(chat.turns)) {
      const at = fold(text).indexOf(wanted);
      if (at >= 0) return [{ chat, turn, snippet: cut(text, at, wanted.length) }];
    }
    return fold(title(chat)).includes(wanted) ? [{ chat }] : [];
  });
}

const fold = (text) => text.toLowerCase();

/** The words with some of what is around them: [before, found, after]. */
function cut(text, at, length) {
  const clean = (part) => part.replace(/\s+/g, ' ');
  const [from, to] = [Math.max(0, at - AROUND), at + length + AROUND];
  return [`${from > 0 ? '…' : ''}${clean(text.slice(from, at))}`, clean(text.slice(at, at + length)),
    `${clean(text.slice(at + length, to))}${to < text.length ? '…' : ''}`];
}
