// Conversations in the browser's database; in memory where the browser keeps none.

const memory = new Map();
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

async function run(mode, work, otherwise) {
  const base = await database();
  if (!base) return otherwise();
  return new Promise((resolve, reject) => {
    const request = work(base.transaction('conversations', mode).objectStore('conversations'));
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** All conversations, the last changed first. */
export async function all() {
  const found = await run('readonly', (store) => store.getAll(), () => [...memory.values()]);
  return found.sort((a, b) => b.changed - a.changed);
}

export const put = (chat) =>
  run('readwrite', (store) => store.put(structuredClone(chat)), () => memory.set(chat.id, structuredClone(chat)));

export const remove = (id) => run('readwrite', (store) => store.delete(id), () => memory.delete(id));
