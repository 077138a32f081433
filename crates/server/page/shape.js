// The shape of a conversation that the browser or a file has kept. What is read here is made anew, field by field: a file
// is anybody's, and the browser's own may be of an earlier version of the page.

/** A conversation, or a file of them, that is not as it must be. */
export class Malformed extends Error {}

/** What is read at most. What the page itself keeps is smaller. */
export const MOST = { text: 8 << 20, preset: 100_000, turns: 20_000, versions: 1000, files: 100, calls: 1000, depth: 500 };
const ENDS = ['stop', 'length', 'tool_calls', 'stopped', 'interrupted', 'error'];

/** The settings that a conversation may have, all as the text of their fields. */
export const SETUP = ['preset', 'system', 'temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed', 'thinking'];

/** A conversation. */
export function readConversation(value, at = 'the conversation') {
  object(value, at);
  return {
    id: text(value.id, `${at}: id`, 200),
    name: text(value.name ?? '', `${at}: name`, 1000),
    changed: number(value.changed ?? 0, `${at}: changed`),
    revision: number(value.revision ?? 0, `${at}: revision`),
    setup: readSetup(value.setup ?? {}, `${at}: setup`),
    turns: readTurns(value.turns, at, 0),
  };
}

/** Settings of a conversation or of a preset; those that are unknown are left out. */
export function readSetup(value, at, most = MOST.text) {
  object(value, at);
  const given = SETUP.filter((name) => value[name] !== undefined);
  return Object.fromEntries(given.map((name) => [name, text(value[name], `${at}: ${name}`, name === 'system' ? most : 200)]));
}

/** A preset: settings with a name. */
export function readPreset(value, at) {
  const name = text(object(value, at).name, `${at}: name`, 100).trim();
  if (!name) throw new Malformed(`${at} has no name`);
  return { name, setup: readSetup(value.setup ?? {}, `${at}: setup`, MOST.preset) };
}

function readTurns(value, at, depth) {
  if (depth > MOST.depth) throw new Malformed(`${at}: versions within versions are deeper than ${MOST.depth}`);
  return list(value, `${at}: turns`, MOST.turns).map((turn, index) => readTurn(turn, depth > 2 ? at : `${at}: turn ${index + 1}`, depth));
}

function readTurn(value, at, depth) {
  object(value, at);
  if (value.role === 'tool') return { role: 'tool', results: list(value.results, `${at}: results`, MOST.calls).map((result) => readResult(result, at)) };
  if (value.role !== 'user' && value.role !== 'model') throw new Malformed(`${at}: the role ${JSON.stringify(value.role)?.slice(0, 40)} is unknown`);
  // Before messages could be edited, they had no versions.
  const versions = value.role === 'user' && !value.versions ? [{ text: value.text, files: value.files ?? [] }] : value.versions;
  const read = value.role === 'user' ? readMessage : readAnswer;
  const found = list(versions, `${at}: versions`, MOST.versions).map((version) => withRest(read(object(version, at), at), version, at, depth));
  if (found.length === 0) throw new Malformed(`${at}: there is no version`);
  const shown = value.shown ?? 0;
  if (!Number.isInteger(shown) || shown < 0 || shown >= found.length) throw new Malformed(`${at}: shown is not one of the ${found.length} versions`);
  return { role: value.role, versions: found, shown };
}

/** The turns that followed a version while it was shown. */
function withRest(version, { rest }, at, depth) {
  return rest === undefined ? version : { ...version, rest: readTurns(rest, at, depth + 1) };
}

function readMessage(value, at) {
  const files = list(value.files ?? [], `${at}: files`, MOST.files).map((file) => {
    object(file, at);
    const found = { name: text(file.name, `${at}: name of a file`, 1000), text: text(file.text, `${at}: text of a file`) };
    return file.image === undefined ? found : { ...found, image: image(file.image, `${at}: image`) };
  });
  return { text: text(value.text, `${at}: text`), files };
}

function readAnswer(value, at) {
  // An answer that was being written when its page was closed.
  const finish = value.finish === null || value.finish === undefined ? 'interrupted' : value.finish;
  return {
    id: typeof value.id === 'string' && value.id.length <= 64 ? value.id : String(Math.random()).slice(2),
    // Earlier versions of the page did not keep it.
    model: text(value.model ?? '', `${at}: model`, 2000),
    text: text(value.text ?? '', `${at}: text`),
    reasoning: text(value.reasoning ?? '', `${at}: reasoning`),
    calls: list(value.calls ?? [], `${at}: calls`, MOST.calls).map((call) => readCall(call, at)),
    results: readResults(value.results ?? {}, at),
    finish: ENDS.includes(finish) ? finish : 'stop',
    usage: readUsage(value.usage),
    failure: readFailure(value, at),
  };
}

function readCall(value, at) {
  object(value, at);
  const [id, name, given] = ['id', 'name', 'arguments'].map((field) => text(value[field], `${at}: ${field} of a call`));
  return { id, name, arguments: given };
}

/** An image, which is in the conversation itself: no address of another host. */
function image(value, at) {
  const url = text(value, at);
  if (!/^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/=]+$/.test(url)) throw new Malformed(`${at} is no data: URL of an image`);
  return url;
}

/** What the user has said that calls returned, before all of them have a result. */
function readResults(value, at) {
  return Object.fromEntries(Object.entries(object(value, at)).slice(0, MOST.calls).map(([id, content]) => [id, text(content, `${at}: results`)]));
}

function readResult(value, at) {
  object(value, at);
  const [id, name, content] = ['id', 'name', 'content'].map((field) => text(value[field], `${at}: ${field} of a result`));
  return { id, name, content };
}

/** An answer that failed has the words for it; before they had a kind, they were `error`. */
function readFailure({ failure, error }, at) {
  if (failure) return { kind: text(object(failure, at).kind, `${at}: failure`, 40), words: text(failure.words, `${at}: failure`), said: text(failure.said ?? '', `${at}: failure`) };
  return error ? { kind: 'failed', words: text(error, `${at}: error`), said: '' } : null;
}

const COUNTS = ['prompt_tokens', 'completion_tokens'];
const TIMES = ['reused_tokens', 'prefill_ms', 'decode_ms', 'queue_ms'];

/** Speeds are decoration: without all of their numbers, there are none. */
function readUsage(usage) {
  const choice = usage?.gristmill?.choices?.[0];
  const numbers = (of, names) => names.every((name) => Number.isFinite(of?.[name]) && of[name] >= 0) && Object.fromEntries(names.map((name) => [name, of[name]]));
  const [counts, times] = [numbers(usage, COUNTS), numbers(choice, TIMES)];
  const total = Number.isFinite(usage?.total_tokens) && usage.total_tokens >= 0 ? { total_tokens: usage.total_tokens } : {};
  return counts && times ? { ...counts, ...total, gristmill: { choices: [times] } } : null;
}

export function object(value, at) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Malformed(`${at} is not an object`);
  return value;
}

export function list(value, at, most) {
  if (!Array.isArray(value)) throw new Malformed(`${at} is not a list`);
  if (value.length > most) throw new Malformed(`${at} has ${value.length} entries; at most ${most} are read`);
  return value;
}

export function text(value, at, most = MOST.text) {
  if (typeof value !== 'string') throw new Malformed(`${at} is not a text`);
  if (value.length > most) throw new Malformed(`${at} has ${value.length} characters; at most ${most} are read`);
  return value;
}

function number(value, at) {
  if (!Number.isFinite(value) || value < 0) throw new Malformed(`${at} is not a number of at least 0`);
  return value;
}
