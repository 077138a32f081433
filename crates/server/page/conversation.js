// A conversation as data: turns of the user and of the model, both with versions, and results of tools. A version that is
// not shown keeps the turns that followed it (`rest`), so an edit or another answer loses nothing.

export function begin() {
  const id = crypto.randomUUID?.() ?? String(Date.now() + Math.random());
  return { id, name: '', changed: Date.now(), revision: 0, setup: {}, turns: [] };
}

export const userTurn = (text, files) => ({ role: 'user', versions: [{ text, files }], shown: 0 });
export const toolTurn = (results) => ({ role: 'tool', results });
export const modelTurn = () => ({ role: 'model', versions: [], shown: 0 });

/** An answer before its first token. `model` is the name of the one that writes it, `finish` is null while it does. */
export const newVersion = () =>
  ({ id: String(Math.random()).slice(2), model: '', text: '', reasoning: '', calls: [], finish: null, usage: null, failure: null });

/** Another model that goes on with an answer is named too. */
export function writtenBy(version, name) {
  if (!version.model) version.model = name;
  else if (version.model.split(', then ').at(-1) !== name) version.model += `, then ${name}`;
}

export const shown = (turn) => turn.versions[turn.shown];

/**
 * Adds a version of a turn and shows it; the turns that followed the last one stay with that. An answer that failed before
 * its first token is replaced.
 */
export function addVersion(chat, turn, version) {
  setAside(chat, turn);
  if (isEmpty(turn)) turn.versions.splice(turn.shown, 1);
  turn.shown = turn.versions.push(version) - 1;
}

/** Shows another version of a turn, with the turns that followed it. */
export function showVersion(chat, turn, number) {
  setAside(chat, turn);
  turn.shown = number;
  chat.turns.push(...(shown(turn).rest ?? []));
  delete shown(turn).rest;
}

const isEmpty = (turn) => turn.role === 'model' && shown(turn) && !shown(turn).rest && !isSaid(shown(turn)) && !shown(turn).reasoning;

function setAside(chat, turn) {
  const rest = chat.turns.splice(chat.turns.indexOf(turn) + 1);
  if (shown(turn) && rest.length > 0) shown(turn).rest = rest;
}

/** What the sidebar says. */
export function title(chat) {
  if (chat.name) return chat.name;
  const first = chat.turns.find((turn) => turn.role === 'user');
  const { text, files } = first ? shown(first) : { text: '', files: [] };
  return (text.trim() || files[0]?.name || 'New conversation').replace(/\s+/g, ' ').slice(0, 80);
}

/** The messages of the first turns, for the server. With `continued` the answer of the last one is to go on. */
export function messages(turns, system, continued = false) {
  const found = system ? [{ role: 'system', content: system }] : [];
  for (const turn of turns) {
    if (turn.role === 'user') found.push({ role: 'user', content: content(shown(turn)) });
    if (turn.role === 'model' && isSaid(shown(turn))) found.push(spoken(shown(turn)));
    if (turn.role === 'tool') {
      for (const { id, name, content } of turn.results) found.push({ role: 'tool', tool_call_id: id, name, content });
    }
  }
  const { reasoning } = continued ? shown(turns.at(-1)) : {};
  if (reasoning) found.at(-1).reasoning_content = reasoning;
  return found;
}

/** Whether an answer can go on where it ended. */
export const canContinue = ({ text, calls, finish }) =>
  Boolean(text) && calls.length === 0 && ['length', 'stopped', 'interrupted', 'error'].includes(finish);

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

/** What a turn says: its text, or a list of its images and the text. */
function content({ text, files }) {
  const images = files.filter(({ image }) => image).map(({ image }) => ({ type: 'image_url', image_url: { url: image } }));
  const words = withFiles({ text, files: files.filter(({ image }) => !image) });
  return images.length > 0 ? [...images, ...(words ? [{ type: 'text', text: words }] : [])] : words;
}

/** The text of a turn, with the files before it. */
function withFiles({ text, files }) {
  return files.map((file) => `${file.name}:\n${fenced(file.text)}\n\n`).join('') + text;
}

/** A block of code whose fence is longer than any in the text. */
export function fenced(text, language = '') {
  const longest = (text.match(/`+/g) ?? []).reduce((most, run) => Math.max(most, run.length), 2);
  const fence = '`'.repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}

/** The texts of a conversation, of all its versions, with the turns that have them. */
export function* texts(turns) {
  for (const turn of turns) {
    if (turn.role === 'tool') for (const { content } of turn.results) yield { turn, text: content };
    for (const version of turn.versions ?? []) {
      yield { turn, text: version.text };
      for (const file of version.files ?? []) yield { turn, text: file.text };
      if (version.rest) yield* texts(version.rest);
    }
  }
}
