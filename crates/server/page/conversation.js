// A conversation as data: turns of the user and of the model, both with versions, and results of tools. A version that is
// not shown keeps the turns that followed it (`rest`), so an edit or another answer loses nothing.

export function begin() {
  const id = crypto.randomUUID?.() ?? String(Date.now() + Math.random());
  return { id, name: '', changed: Date.now(), revision: 0, turns: [] };
}

export const userTurn = (text, files) => ({ role: 'user', versions: [{ text, files }], shown: 0 });
export const toolTurn = (results) => ({ role: 'tool', results });
export const modelTurn = () => ({ role: 'model', versions: [], shown: 0 });

/** An answer before its first token. `finish` is null while it is written. */
export const newVersion = () =>
  ({ id: String(Math.random()).slice(2), text: '', reasoning: '', calls: [], finish: null, usage: null, error: null });

export const shown = (turn) => turn.versions[turn.shown];

/** Adds a version of a turn and shows it; the turns that followed the last one stay with that. */
export function addVersion(chat, turn, version) {
  setAside(chat, turn);
  turn.shown = turn.versions.push(version) - 1;
}

/** Shows another version of a turn, with the turns that followed it. */
export function showVersion(chat, turn, number) {
  setAside(chat, turn);
  turn.shown = number;
  chat.turns.push(...(shown(turn).rest ?? []));
  delete shown(turn).rest;
}

function setAside(chat, turn) {
  const rest = chat.turns.splice(chat.turns.indexOf(turn) + 1);
  if (shown(turn) && rest.length > 0) shown(turn).rest = rest;
}

/** A conversation as the browser or a file has kept it: of an earlier form, or with answers whose page was closed. */
export function restored(chat) {
  return { name: '', revision: 0, ...chat, turns: chat.turns.map(restoredTurn) };
}

function restoredTurn(turn) {
  if (turn.role === 'user' && !turn.versions) return userTurn(turn.text, turn.files);
  for (const version of turn.versions ?? []) {
    if (version.finish === null) version.finish = 'interrupted';
    if (version.rest) version.rest = version.rest.map(restoredTurn);
  }
  return turn;
}

/** What the sidebar says. */
export function title(chat) {
  if (chat.name) return chat.name;
  const first = chat.turns.find((turn) => turn.role === 'user');
  const { text, files } = first ? shown(first) : { text: '', files: [] };
  return (text.trim() || files[0]?.name || 'New conversation').replace(/\s+/g, ' ').slice(0, 80);
}

/** The messages of the first turns, for the server. */
export function messages(turns, system) {
  const found = system ? [{ role: 'system', content: system }] : [];
  for (const turn of turns) {
    if (turn.role === 'user') found.push({ role: 'user', content: withFiles(shown(turn)) });
    if (turn.role === 'model' && isSaid(shown(turn))) found.push(spoken(shown(turn)));
    if (turn.role === 'tool') {
      for (const { id, name, content } of turn.results) found.push({ role: 'tool', tool_call_id: id, name, content });
    }
  }
  return found;
}

/** An answer that failed before its first word is no message. */
const isSaid = (version) => Boolean(version && (version.text || version.calls.length > 0));

function spoken({ text, calls }) {
  const message = { role: 'assistant', content: text };
  if (calls.length > 0) {
    message.tool_calls = calls.map(({ id, name, arguments: given }) =>
      ({ id, type: 'function', function: { name, arguments: given } }));
  }
  return message;
}

/** The text of a turn, with the files before it. A fence is longer than any in the file. */
function withFiles({ text, files }) {
  const parts = files.map((file) => {
    const longest = Math.max(2, ...(file.text.match(/`+/g) ?? []).map((run) => run.length));
    const fence = '`'.repeat(longest + 1);
    return `${file.name}:\n${fence}\n${file.text}\n${fence}\n\n`;
  });
  return parts.join('') + text;
}
