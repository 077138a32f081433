// Conversations in the browser's database; in memory where the browser keeps none. Tabs tell each other what they change.

import { readConversation } from './shape.js';

const memory = new Map();
const tabs = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel('gristmill-conversations');
let opened;

function database() {
  opened ??= new Promise((resolve) => {
    const request = indexedDB.open('gristmill', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => resolve(null);
  }).catch(() => null);
  return opened;
}

/** Runs `work` on the store in one transaction; it returns the last request, or null. */
async function run(mode, work, otherwise) {
  const base = await database();
  if (!base) return otherwise();
  return new Promise((resolve, reject) => {
    const transaction = base.transaction('conversations', mode);
    let last = null;
    work(transaction.objectStore('conversations'), (request) => { last = request; });
    transaction.oncomplete = () => resolve(last?.result);
    transaction.onabort = () => reject(transaction.error);
  });
}

/** Whether the browser keeps conversations; some keep none in private windows. */
export const isKept = async () => (await database()) !== null;

/** Asks the browser, once, not to remove conversations when it needs space. */
let persistence;
const persist = () => { persistence ??= navigator.storage?.persist?.().catch(() => false) ?? Promise.resolve(false); };

/** All conversations, the last changed first. */
export async function all() {
  const found = await run('readonly', (store, last) => last(store.getAll()), () => [...memory.values()]);
  return found.map(readKept).filter(Boolean).sort((a, b) => b.changed - a.changed);
}

/** The conversation with this id, or undefined. */
export async function get(id) {
  const found = await run('readonly', (store, last) => last(store.get(id)), () => memory.get(id));
  return found && readKept(found);
}

/** A conversation in the shape of this version of the page. One that is damaged stays in the database, unread. */
function readKept(chat) {
  try {
    return readConversation(chat);
  } catch (error) {
    console.warn(`a conversation cannot be read: ${error.message}`);
    return undefined;
  }
}

/** The last write of each conversation: the next one follows it, so that it knows its revision. */
const writes = new WeakMap();

/**
 * Keeps a conversation and raises its revision. Whether it could: another tab may have kept a revision that this one does
 * not know.
 */
export function put(chat) {
  persist();
  const write = (writes.get(chat) ?? Promise.resolve()).catch(() => {}).then(() => putNow(chat));
  writes.set(chat, write);
  return write;
}

async function putNow(chat) {
  const copy = structuredClone(chat);
  let isNewest = true;
  const write = (kept, store) => {
    isNewest = !kept || (kept.revision ?? 0) === chat.revision;
    if (isNewest) store({ ...copy, revision: chat.revision + 1 });
  };
  await run('readwrite', (store) => {
    const known = store.get(copy.id);
    known.onsuccess = () => write(known.result, (value) => store.put(value));
  }, () => write(memory.get(copy.id), (value) => memory.set(value.id, value)));
  if (!isNewest) return false;
  chat.revision += 1;
  tabs?.postMessage(chat.id);
  return true;
}

export async function remove(id) {
  await run('readwrite', (store) => { store.delete(id); }, () => memory.delete(id));
  tabs?.postMessage(id);
}

/** Calls `changed` with the id of each conversation that another tab keeps or removes. */
export const watch = (changed) => tabs?.addEventListener('message', ({ data }) => changed(data));
