// The conversation in the page's address, `#/chat/ID`. A new one has none before its first message.

/** The id that the address names, or ''. */
export const addressed = () => decodeURIComponent(/^#\/chat\/(.+)$/.exec(location.hash)?.[1] ?? '');

/** Puts a conversation into the address, by a method of the browser's history. */
export function address(chat, method) {
  const hash = chat.turns.length > 0 ? `#/chat/${encodeURIComponent(chat.id)}` : '';
  if (location.hash !== hash) history[method](null, '', `${location.pathname}${location.search}${hash}`);
}
