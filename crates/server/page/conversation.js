// A conversation as data: turns of the user, of the model (with versions), and results of tools.

export function begin() {
  return { id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()), title: '', changed: Date.now(), turns: [] };
}

export const userTurn = (text, files) => ({ role: 'user', text, files });
export const toolTurn = (results) => ({ role: 'tool', results });
export const modelTurn = () => ({ role: 'model', versions: [], shown: 0 });

/** An answer before its first token. */
export const newVersion = () =>
  ({ id: String(Math.random()).slice(2), text: '', reasoning: '', calls: [], finish: null, usage: null, error: null });

export const shown = (turn) => turn.versions[turn.shown];

/** What the sidebar says. */
export function title(chat) {
  const first = chat.turns.find((turn) => turn.role === 'user');
  const text = first?.text.trim() || first?.files[0]?.name || 'New conversation';
  return text.replace(/\s+/g, ' ').slice(0, 80);
}

/** The messages of the first turns, for the server. */
export function messages(turns, system) {
  const found = system ? [{ role: 'system', content: system }] : [];
  for (const turn of turns) {
    if (turn.role === 'user') found.push({ role: 'user', content: withFiles(turn) });
    if (turn.role === 'model' && shown(turn)) found.push(spoken(shown(turn)));
    if (turn.role === 'tool') {
      for (const { id, name, content } of turn.results) found.push({ role: 'tool', tool_call_id: id, name, content });
    }
  }
  return found;
}

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
